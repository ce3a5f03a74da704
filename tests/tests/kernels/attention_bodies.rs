//! The bodies of attention that one device under test can run. Knows no shape.

use twoclock_shaders::caps::{Caps, DeviceKind};

/// Which bodies are run: those of a kind of device, on processors with or without what the lanes of
/// a subgroup tell each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bodies {
    kind: DeviceKind,
    subgroups: bool,
}

pub(crate) const PLAIN: Bodies = Bodies {
    kind: DeviceKind::Cpu,
    subgroups: false,
};
pub(crate) const BODIES: [Bodies; 3] = [
    PLAIN,
    Bodies {
        kind: DeviceKind::Cpu,
        subgroups: true,
    },
    Bodies {
        kind: DeviceKind::Gpu,
        subgroups: true,
    },
];

impl Bodies {
    pub(crate) fn caps(self, device: &Caps) -> Caps {
        Caps {
            kind: self.kind,
            subgroups: device.subgroups.filter(|_| self.subgroups),
            ..device.clone()
        }
    }
}
