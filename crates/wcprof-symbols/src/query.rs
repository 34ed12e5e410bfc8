//! Addresses to name, by module, and their names.

use wcprof_trace::model::SymbolFrame;
use wcprof_types::Svma;

use crate::demangle::printable;
use crate::files::ModuleIdentity;
use crate::report::ModuleReport;

/// An address to name.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AddressQuery {
    /// The lookup address: inside the call instruction for a return address.
    pub address: Svma,
    /// Start of the function by its FDE, when the unwinder found one.
    pub function: Option<Svma>,
}

impl From<Svma> for AddressQuery {
    /// Of a place whose function is not known.
    fn from(address: Svma) -> Self {
        Self {
            address,
            function: None,
        }
    }
}

/// Addresses of one module to name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleQuery {
    /// Which file.
    pub module: ModuleIdentity,
    /// What `+0xoffset` of unnamed functions counts from: the page-aligned address of the first
    /// `PT_LOAD` segment.
    pub base: Svma,
    /// The addresses, in any order.
    pub addresses: Vec<AddressQuery>,
}

impl ModuleQuery {
    /// `module+0xoffset` of a place without a name.
    pub(crate) fn unnamed(&self, place: Svma) -> String {
        let offset = place.0.wrapping_sub(self.base.0);
        format!("{}+{offset:#x}", printable(self.module.file_name()))
    }
}

/// Names of one module's addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModuleSymbols {
    /// By address, in the order of [`ModuleQuery::addresses`]: its functions, innermost inline
    /// function first; never empty, the last is not inlined.
    pub frames: Vec<Vec<SymbolFrame>>,
    /// What was used and what was missing.
    pub report: ModuleReport,
}
