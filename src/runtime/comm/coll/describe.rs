//! Descriptions of collectives ([`OpDesc`]), for the flight recorder and reports.

use super::CollArgs;
use crate::runtime::comm::op_desc::OpDesc;

impl OpDesc {
    /// Returns the description of a collective.
    pub(crate) fn of(args: &CollArgs) -> OpDesc {
        OpDesc {
            peer: args.root,
            op: args.reduction.map_or(-1, |reduction| reduction.op),
            ..OpDesc::new(args.kind).with(args.count, args.dtype)
        }
    }

    /// Returns true if the calls made by two ranks can belong to one collective. Counts may differ
    /// in collectives in which each rank passes its own counts (vector variants).
    pub(crate) fn goes_with(&self, other: &OpDesc) -> bool {
        let uniform = !self.kind.row().is_varied();
        let compared = |call: &OpDesc| (call.kind, call.portable_types(), call.peer);
        compared(self) == compared(other) && (!uniform || self.count == other.count)
    }
}
