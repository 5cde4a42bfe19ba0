//! The name of a backend in, its device out. No other file knows which backends are compiled in.

mod copies;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod kernels;
#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
#[path = "device/no_kernels.rs"]
mod kernels;
mod lists;

use std::sync::OnceLock;

#[cfg(all(feature = "cuda", not(feature = "wgpu")))]
use burn::backend::Cuda as Cube;
#[cfg(feature = "wgpu")]
use burn::backend::Wgpu as Cube;
use burn::tensor::Device;
use serde::Serialize;
use sysinfo::{CGroupLimits, MemoryRefreshKind, RefreshKind, System};

use crate::error::{Error, Result};

pub(crate) use copies::{data, failed, floats, integers, list_to_device, rows_to_device};
pub use copies::{to_device, to_host};
pub(crate) use kernels::{pack, prune, sweep};
pub(crate) use lists::{Asked, Lists, Part};

/// A device and its name.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The device, without autodiff.
    pub device: Device,
    /// The name, as `--device` takes it.
    pub name: &'static str,
    /// The memory of a GPU; none on a CPU, which shares the host's.
    pub memory: Option<Memory>,
    /// How exact searches on a GPU multiply; none for the fastest.
    pub manner: Option<Manner>,
}

/// The numbers that an exact search on a GPU multiplies. The answers are those of f32 either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Manner {
    /// Numbers in f32.
    Sweep,
    /// Numbers in f16, by matrix units where the GPU has some: half the memory and the traffic. More is within
    /// rounding of the K-th best then, and the host ranks it.
    Half,
}

impl Manner {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("sweep", Self::Sweep), ("half", Self::Half)];
}

impl Chosen {
    /// This device with one of `shares` equal parts of the budget of its memory.
    #[must_use]
    pub fn shared_by(&self, shares: usize) -> Self {
        let part = |budget: u64| budget / shares.max(1) as u64;
        let of = |memory: Memory| Memory { budget: memory.budget.map(part), ..memory };
        Self { memory: self.memory.map(of), ..self.clone() }
    }

    /// What computes: the adapter's name as its driver gives it, and its kind in brackets.
    #[must_use]
    pub fn hardware(&self) -> String {
        #[cfg(feature = "wgpu")]
        if let ("wgpu", Some(found)) = (self.name, wgpu::gpu().or_else(wgpu::software)) {
            return format!("{}{}", found.name, found.kind);
        }
        if self.memory.is_some() { format!("{:?}", self.device) } else { "CPU".into() }
    }
}

/// What may be stored on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The most bytes of one tensor.
    pub tensor: u64,
    /// The most bytes of all that a search or a policy keeps there; none for as much as there is.
    pub budget: Option<u64>,
}

/// The most bytes of one tensor, whatever the device allows: an index into it fits 32 bits.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const LARGEST_TENSOR: u64 = 1 << 30;

/// The budget that [`limit_memory`] has set.
static BUDGET: OnceLock<u64> = OnceLock::new();

/// Limits what is kept on a GPU to so many bytes, for every device that is chosen from now on. A
/// process has one limit, as it has one runtime of a device; the first counts.
pub fn limit_memory(bytes: u64) {
    BUDGET.get_or_init(|| bytes);
}

/// The limit that [`limit_memory`] has set, in bytes.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    BUDGET.get().copied()
}

impl Memory {
    /// As much as a device takes whose tensors may have so many bytes, within [`limit_memory`].
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    fn of(tensor: u64) -> Self {
        Self { tensor: tensor.min(LARGEST_TENSOR), budget: memory_limit() }
    }
}

/// The names of all backends.
pub const NAMES: [&str; 4] = ["ndarray", "flex", "wgpu", "cuda"];

/// Why a device was chosen that nobody named.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const FOUND: &str = " (a GPU was found)";

/// The names of the backends in this build.
#[must_use]
pub fn compiled() -> Vec<&'static str> {
    let there = [
        cfg!(feature = "ndarray"),
        cfg!(feature = "flex"),
        cfg!(feature = "wgpu"),
        cfg!(feature = "cuda"),
    ];
    NAMES.into_iter().zip(there).filter_map(|(name, there)| there.then_some(name)).collect()
}

/// Chooses the device called `name`. Without a name it chooses a real GPU of a compiled backend if
/// there is one, otherwise the CPU. A software adapter is taken only if it is asked for. Logs the
/// choice and, without a name, the reason.
///
/// # Errors
/// [`Error::Device`] when the name is unknown, not compiled in, or has no device on this machine.
pub fn choose(name: Option<&str>) -> Result<Chosen> {
    let (chosen, note) = match name {
        Some(name) => named(name)?,
        None => automatic()?,
    };
    tracing::info!("device {}{note}", chosen.name);
    Ok(chosen)
}

/// The device called `name`, and its kind.
fn named(name: &str) -> Result<(Chosen, String)> {
    let asked = |device, name, what: &str| {
        (Chosen { device, name, memory: None, manner: None }, what.to_owned())
    };
    match name {
        #[cfg(feature = "ndarray")]
        "ndarray" => Ok(asked(ndarray(), "ndarray", " (CPU)")),
        #[cfg(feature = "flex")]
        "flex" => Ok(asked(Device::flex(), "flex", " (CPU)")),
        #[cfg(feature = "wgpu")]
        "wgpu" => {
            let found = wgpu::gpu().or_else(wgpu::software).ok_or_else(|| Error::Device {
                device: name.into(),
                problem: "no adapter was found; install a graphics driver (on Debian, \
                          mesa-vulkan-drivers has a software one), or use a CPU device"
                    .into(),
            })?;
            Ok((found.chosen(), found.kind.to_owned()))
        }
        #[cfg(feature = "cuda")]
        "cuda" => match cuda::gpu() {
            Some(device) => Ok((cuda::chosen(device), " (GPU)".to_owned())),
            None => Err(Error::Device {
                device: name.into(),
                problem: "no CUDA device was found; check the driver, or use another device".into(),
            }),
        },
        known if NAMES.contains(&known) => Err(Error::Device {
            device: name.into(),
            problem: format!(
                "not compiled in; build with `--features {name}` (this build has {})",
                compiled().join(", ")
            ),
        }),
        _ => Err(Error::Device {
            device: name.into(),
            problem: format!("no such device; expected one of {}", NAMES.join(", ")),
        }),
    }
}

/// The best device here, and why it was chosen.
fn automatic() -> Result<(Chosen, String)> {
    #[cfg(feature = "cuda")]
    if let Some(device) = cuda::gpu() {
        return Ok((cuda::chosen(device), FOUND.into()));
    }
    #[cfg(feature = "wgpu")]
    if let Some(found) = wgpu::gpu() {
        return Ok((found.chosen(), FOUND.into()));
    }
    let gpus: Vec<_> =
        compiled().into_iter().filter(|name| ["wgpu", "cuda"].contains(name)).collect();
    let why = match gpus.as_slice() {
        [] => "no GPU backend is compiled in".to_owned(),
        names => format!("no GPU was found for {}", names.join(" or ")),
    };
    let cpu = compiled().into_iter().find(|name| ["ndarray", "flex"].contains(name));
    let Some(cpu) = cpu else {
        return Err(Error::Device {
            device: "automatic".into(),
            problem: format!("{why}, nor a CPU backend; build with `--features ndarray`"),
        });
    };
    Ok((named(cpu)?.0, format!(" (CPU: {why})")))
}

/// True if the tensors of `device` are in the host's memory.
pub(crate) fn is_host(device: &Device) -> bool {
    hosts().contains(device)
}

/// A device whose tensors are in the host's memory; Burn's default where none is compiled in. That default
/// is a GPU wherever a build knows one, and to make a tensor there starts its driver or fails.
pub(crate) fn host() -> Device {
    hosts().into_iter().next().unwrap_or_default()
}

fn hosts() -> Vec<Device> {
    vec![
        #[cfg(feature = "ndarray")]
        ndarray(),
        #[cfg(feature = "flex")]
        Device::flex(),
    ]
}

#[cfg(feature = "ndarray")]
#[allow(deprecated, reason = "asked for; Burn 0.23 drops it, hence the exact pin in Cargo.toml")]
fn ndarray() -> Device {
    Device::ndarray()
}

#[cfg(feature = "wgpu")]
mod wgpu {
    use std::sync::OnceLock;

    use burn::tensor::wgpu::{WgpuBackend, WgpuInitError};
    use burn::tensor::{Device, DeviceKind};

    use super::{Chosen, Memory};

    /// Vulkan only on Linux, because the runtime would try OpenGL next, which computes too slowly.
    /// Elsewhere the runtime chooses the API.
    const API: WgpuBackend =
        if cfg!(target_os = "linux") { WgpuBackend::Vulkan } else { WgpuBackend::Auto };

    /// An adapter that the runtime has been started on.
    #[derive(Clone, Debug)]
    pub(super) struct Found {
        device: Device,
        /// The driver's name of it.
        pub(super) name: String,
        /// What it is, in brackets.
        pub(super) kind: &'static str,
        /// The most bytes of a buffer that a kernel can be given.
        pub(super) binding: u64,
    }

    impl Found {
        pub(super) fn chosen(&self) -> Chosen {
            let memory = Some(Memory::of(self.binding));
            Chosen { device: self.device.clone(), name: "wgpu", memory, manner: None }
        }
    }

    /// The first discrete GPU, else the first integrated, else the first virtual one.
    pub(super) fn gpu() -> Option<Found> {
        // A process can initialise the runtime only once, so the answer is kept.
        static GPU: OnceLock<Option<Found>> = OnceLock::new();
        GPU.get_or_init(|| {
            first([
                (DeviceKind::DiscreteGpu(0), " (GPU)"),
                (DeviceKind::IntegratedGpu(0), " (integrated GPU)"),
                (DeviceKind::VirtualGpu(0), " (virtual GPU)"),
            ])
        })
        .clone()
    }

    /// A CPU that the driver offers as a GPU, such as Mesa's lavapipe.
    pub(super) fn software() -> Option<Found> {
        static SOFTWARE: OnceLock<Option<Found>> = OnceLock::new();
        SOFTWARE.get_or_init(|| first([(DeviceKind::Cpu, " (software adapter)")])).clone()
    }

    fn first<const N: usize>(kinds: [(DeviceKind, &'static str); N]) -> Option<Found> {
        kinds.into_iter().find_map(|(wanted, kind)| {
            let options = Device::wgpu_options().device_kind(wanted).graphics_api(API);
            let (device, setup) = match options.init_with_setup() {
                Ok(started) => started,
                // A machine without a GPU of this kind is an ordinary machine.
                Err(error @ WgpuInitError::AdapterUnavailable { .. }) => {
                    tracing::debug!("wgpu: {error}");
                    return None;
                }
                Err(error) => {
                    tracing::warn!("wgpu{kind} cannot be used: {error}");
                    return None;
                }
            };
            let limits = setup.device.limits();
            let binding = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
            Some(Found { device, name: setup.adapter.get_info().name, kind, binding })
        })
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use burn::tensor::{Device, DeviceType};

    use super::{Chosen, LARGEST_TENSOR, Memory};

    /// The first CUDA device. The loader panics if there is no driver.
    pub(super) fn gpu() -> Option<Device> {
        let found = std::panic::catch_unwind(|| Device::enumerate(DeviceType::Cuda).into_vec());
        found.ok()?.into_iter().next()
    }

    pub(super) fn chosen(device: Device) -> Chosen {
        let memory = Some(Memory::of(LARGEST_TENSOR));
        Chosen { device, name: "cuda", memory, manner: None }
    }
}

/// A backend of this build, and what it finds here.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The name, as `--device` takes it.
    pub name: &'static str,
    /// What it computes on; none where it finds nothing.
    pub found: Option<String>,
    /// The most bytes of one tensor on a GPU.
    pub largest_tensor: Option<u64>,
}

/// The backends of this build with what each finds on this machine. Starts the runtimes of GPUs.
#[must_use]
pub fn list() -> Vec<Listed> {
    let listed = |name| match named(name) {
        Ok((chosen, _)) => Listed {
            name,
            found: Some(chosen.hardware()),
            largest_tensor: chosen.memory.map(|memory| memory.tensor),
        },
        Err(_) => Listed { name, found: None, largest_tensor: None },
    };
    compiled().into_iter().map(listed).collect()
}

/// The memory that can be had without swapping, in bytes; none where the system does not tell. In a
/// container, what its limit leaves beside the memory in use; the cache of files can be had.
pub(crate) fn available_memory() -> Option<f64> {
    let refresh = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(refresh);
    let left = |limits: CGroupLimits| limits.total_memory.saturating_sub(limits.rss);
    let limit = system.cgroup_limits().map_or(u64::MAX, left);
    Some(system.available_memory().min(limit) as f64).filter(|bytes| *bytes > 0.0)
}
