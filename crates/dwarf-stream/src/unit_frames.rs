//! What is kept of a unit once it was read.

use gimli::UnitType;

use crate::functions::Functions;
use crate::text::Text;
use crate::unit::{Inherited, Unit};
use crate::wanted::Wanted;

/// What is kept of a unit.
#[derive(Debug)]
pub(crate) struct UnitFrames {
    /// Functions at `wanted`; of some addresses only the unit is known.
    pub(crate) functions: Functions,
    /// The addresses that it holds, sorted.
    pub(crate) wanted: Vec<Wanted>,
    /// Where its functions are, if not here.
    pub(crate) skeleton: Option<Skeleton>,
    pub(crate) line_program: Option<u64>,
    pub(crate) address_size: u8,
    pub(crate) comp_dir: Text,
}

/// What a unit keeps of the one that was split off it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Skeleton {
    /// Id that both have.
    pub(crate) id: u64,
    /// File of the unit that was split off.
    pub(crate) name: Text,
    pub(crate) inherited: Inherited,
}

impl Skeleton {
    /// `None` of a unit that is whole.
    pub(crate) fn new(unit: &Unit<'_>) -> Option<Self> {
        let is_skeleton = matches!(unit.header.type_(), UnitType::Skeleton(_));
        (is_skeleton || unit.dwo_name != Text::None).then_some(())?;
        Some(Self {
            id: unit.dwo_id?,
            name: unit.dwo_name.clone(),
            inherited: unit.inherited(),
        })
    }
}
