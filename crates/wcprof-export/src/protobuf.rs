//! Protocol buffers, the writing side: varints, packed lists and nested messages
//! (<https://protobuf.dev/programming-guides/encoding/>).

const VARINT: u32 = 0;
const BYTES: u32 = 2;

/// A message under construction.
#[derive(Debug, Default)]
pub(crate) struct Message(Vec<u8>);

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

impl Message {
    /// A message of numbers, by field.
    pub(crate) fn of_numbers(fields: &[(u32, u64)]) -> Self {
        let mut message = Self::default();
        for (field, n) in fields {
            message.number(*field, *n);
        }
        message
    }

    /// A field of a number type without zigzag; 0 is the default and is not written.
    pub(crate) fn number(&mut self, field: u32, n: u64) -> &mut Self {
        if n != 0 {
            put(&mut self.0, u64::from(field << 3 | VARINT));
            put(&mut self.0, n);
        }
        self
    }

    /// A string, also an empty one: entries of a list count.
    pub(crate) fn string(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    /// A nested message.
    pub(crate) fn message(&mut self, field: u32, inner: &Self) -> &mut Self {
        self.bytes(field, &inner.0)
    }

    /// A packed list of numbers.
    pub(crate) fn packed(
        &mut self,
        field: u32,
        numbers: impl IntoIterator<Item = u64>,
    ) -> &mut Self {
        let mut inner = Vec::new();
        for n in numbers {
            put(&mut inner, n);
        }
        self.bytes(field, &inner)
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        put(&mut self.0, u64::from(field << 3 | BYTES));
        put(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// The encoded message.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the examples of the encoding guide: 150 in field 1, "testing" in field 2, a packed list.
    #[test]
    fn guide() {
        assert_eq!(
            Message::default().number(1, 150).as_bytes(),
            [0x08, 0x96, 0x01]
        );
        let text = [0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g'];
        assert_eq!(Message::default().string(2, "testing").as_bytes(), text);
        let list = [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05];
        assert_eq!(
            Message::default().packed(6, [3, 270, 86942]).as_bytes(),
            list
        );
    }
}
