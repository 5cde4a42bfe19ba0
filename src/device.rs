//! The name of a backend in, its device out. No other file knows which backends are compiled in.

use burn::tensor::Device;

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use crate::error::{Error, Result};

/// A device and its name.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The device, without autodiff.
    pub device: Device,
    /// The name, as `--device` takes it.
    pub name: &'static str,
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
    let asked = |device, name, what: &str| (Chosen { device, name }, what.to_owned());
    match name {
        #[cfg(feature = "ndarray")]
        "ndarray" => Ok(asked(ndarray(), "ndarray", " (CPU)")),
        #[cfg(feature = "flex")]
        "flex" => Ok(asked(Device::flex(), "flex", " (CPU)")),
        #[cfg(feature = "wgpu")]
        "wgpu" => {
            let (device, what) =
                wgpu::gpu().or_else(wgpu::software).ok_or_else(|| Error::Device {
                    device: name.into(),
                    problem: "no adapter was found; install a graphics driver (on Debian, \
                          mesa-vulkan-drivers has a software one), or use a CPU device"
                        .into(),
                })?;
            Ok(asked(device, "wgpu", what))
        }
        #[cfg(feature = "cuda")]
        "cuda" => match cuda::gpu() {
            Some(device) => Ok(asked(device, "cuda", " (GPU)")),
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
        return Ok((Chosen { device, name: "cuda" }, FOUND.into()));
    }
    #[cfg(feature = "wgpu")]
    if let Some((device, _)) = wgpu::gpu() {
        return Ok((Chosen { device, name: "wgpu" }, FOUND.into()));
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

#[cfg(feature = "ndarray")]
#[allow(deprecated, reason = "asked for; Burn 0.23 drops it, hence the exact pin in Cargo.toml")]
fn ndarray() -> Device {
    Device::ndarray()
}

#[cfg(feature = "wgpu")]
mod wgpu {
    use std::sync::OnceLock;

    use burn::tensor::wgpu::WgpuBackend;
    use burn::tensor::{Device, DeviceKind};

    /// Vulkan only on Linux, because the runtime would try OpenGL next, which computes too slowly.
    /// Elsewhere the runtime chooses the API.
    const API: WgpuBackend =
        if cfg!(target_os = "linux") { WgpuBackend::Vulkan } else { WgpuBackend::Auto };

    type Found = Option<(Device, &'static str)>;

    /// The first discrete GPU, else the first integrated, else the first virtual one.
    pub(super) fn gpu() -> Found {
        // A process can initialise the runtime only once, so the answer is kept.
        static GPU: OnceLock<Found> = OnceLock::new();
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
    pub(super) fn software() -> Found {
        static SOFTWARE: OnceLock<Found> = OnceLock::new();
        SOFTWARE.get_or_init(|| first([(DeviceKind::Cpu, " (software adapter)")])).clone()
    }

    fn first<const N: usize>(kinds: [(DeviceKind, &'static str); N]) -> Found {
        kinds.into_iter().find_map(|(kind, what)| {
            let device = Device::wgpu_options().device_kind(kind).graphics_api(API).init().ok()?;
            Some((device, what))
        })
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use burn::tensor::{Device, DeviceType};

    /// The first CUDA device. The loader panics if there is no driver.
    pub(super) fn gpu() -> Option<Device> {
        let found = std::panic::catch_unwind(|| Device::enumerate(DeviceType::Cuda).into_vec());
        found.ok()?.into_iter().next()
    }
}

/// The memory that can be had without swapping, in bytes; none where the system does not tell.
pub(crate) fn available_memory() -> Option<f64> {
    let refresh = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(refresh);
    let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    Some(system.available_memory().min(limit) as f64).filter(|bytes| *bytes > 0.0)
}
