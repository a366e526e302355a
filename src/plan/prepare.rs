//! Everything about one kernel at one shape and tiling that building, running and keys need. Pure.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use super::Setting;
use super::instantiate::{Instance, InstantiateError, instantiate, reduced_shape};
use super::keys::{MeasurementMaterial, SubjectMaterial, VerificationMaterial};
use crate::catalog::Package;
use crate::expr::Scope;
use crate::model::build::{StageBuild, Toolchain};
use crate::model::calling::ArgType;
use crate::model::pipeline::Pipeline;
use crate::model::{Choices, Key, Mode, Shape, Tiling};

/// A kernel at one shape and one tiling, with what the compiler must make of it.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub instance: Instance,
    /// One a stage of the instance's pipeline.
    pub builds: Vec<StageBuild>,
    /// Their keys.
    pub build_keys: Vec<Key>,
    pub tiling: Tiling,
}

/// Keys of builds that were met before: hundreds of shapes share a handful of modules.
#[derive(Debug, Default)]
pub struct BuildKeys(RefCell<HashMap<StageBuild, Key>>);

impl BuildKeys {
    fn key(&self, build: &StageBuild, toolchain: &Toolchain) -> Key {
        if let Some(key) = self.0.borrow().get(build) {
            return *key;
        }
        let key = build.material(toolchain).key();
        self.0.borrow_mut().insert(build.clone(), key);
        key
    }
}

impl Prepared {
    /// `package` at `shape` with the choices of `tiling`, compiled by the setting's toolchain.
    ///
    /// # Errors
    /// As [`instantiate`], and where a stage has no block to launch.
    pub fn new(
        setting: &Setting<'_>,
        package: &Package,
        shape: &Shape,
        tiling: &Tiling,
        root: &Scope<'_>,
        known: &BuildKeys,
    ) -> Result<Prepared, InstantiateError> {
        let instance = instantiate(package, shape, tiling, root)?;
        Ok(Prepared::of(setting, package, instance, tiling, known))
    }

    /// `instance` of `package`, which has the choices of `tiling`.
    pub(super) fn of(
        setting: &Setting<'_>,
        package: &Package,
        instance: Instance,
        tiling: &Tiling,
        known: &BuildKeys,
    ) -> Prepared {
        let builds: Vec<StageBuild> =
            (0..instance.stages.len()).map(|index| stage_build(package, &instance, index)).collect();
        let build_keys = builds.iter().map(|build| known.key(build, setting.toolchain)).collect();
        Prepared { instance, builds, build_keys, tiling: tiling.clone() }
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.instance.pipeline
    }

    /// Material of the subject's key.
    pub fn subject<'a>(&'a self, setting: &'a Setting<'_>) -> SubjectMaterial<'a> {
        SubjectMaterial {
            builds: self.builds_by_stage(),
            launches: &self.pipeline().stages,
            buffers: &self.pipeline().buffers,
            tiling: &self.tiling,
            reference: self.pipeline().reference.as_ref(),
            device: &setting.device.id,
        }
    }

    pub(super) fn builds_by_stage(&self) -> BTreeMap<&str, Key> {
        self.pipeline().stages.iter().map(|stage| stage.name.as_str()).zip(self.build_keys.iter().copied()).collect()
    }

    /// Key of the measurement in `mode`.
    pub fn measurement_key(&self, setting: &Setting<'_>, mode: Mode) -> Key {
        measurement(setting, self.subject(setting).key(), mode, &setting.protocols.material(mode)).key()
    }

    /// Everything that the key of the measurement in `mode` depends on, nested keys expanded.
    pub fn explanation(&self, setting: &Setting<'_>, mode: Mode) -> serde_json::Value {
        let json =
            |value: Result<serde_json::Value, serde_json::Error>| value.expect("key material serialises to JSON");
        let subject = self.subject(setting);
        let protocol = setting.protocols.material(mode);
        let mut explained = json(serde_json::to_value(measurement(setting, subject.key(), mode, &protocol)));
        explained["subject"] = json(serde_json::to_value(&subject));
        for (stage, build) in self.pipeline().stages.iter().zip(&self.builds) {
            explained["subject"]["builds"][&stage.name] = json(serde_json::to_value(build.material(setting.toolchain)));
        }
        explained
    }

    /// Time that no run can beat by the calibrated peaks, in nanoseconds: the sum of the stages' floors. `None` where
    /// the device has no peaks for the dtype.
    pub fn floor_ns(&self, setting: &Setting<'_>) -> Option<f64> {
        let peaks = setting.peaks?;
        let dtype = self.instance.shape.dtype()?;
        let flops_per_s = *peaks.flops_per_s.get(&dtype)?;
        let floor = |flops: f64, bytes: f64| (flops / flops_per_s).max(bytes / peaks.bytes_per_s);
        Some(1e9 * self.instance.stages.iter().map(|stage| floor(stage.flops, stage.bytes)).sum::<f64>())
    }
}

/// The kernel on its reduced shape, with the same tiling of its stages.
///
/// # Errors
/// As [`instantiate`].
pub fn prepare_reduced(
    setting: &Setting<'_>,
    package: &Package,
    prepared: &Prepared,
    root: &Scope<'_>,
    known: &BuildKeys,
) -> Result<Prepared, InstantiateError> {
    let shape = reduced_shape(package, &prepared.instance.shape, root)?;
    let tiling = Tiling { pipeline: without_parameters(package, &prepared.tiling), ..prepared.tiling.clone() };
    Prepared::new(setting, package, &shape, &tiling, root, known)
}

/// The pipeline's choices without tuned parameters, which were chosen for another shape.
fn without_parameters(package: &Package, tiling: &Tiling) -> Choices {
    let is_choice = |name: &String| package.parameter(name).is_none();
    tiling
        .pipeline
        .iter()
        .filter(|(name, _)| is_choice(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Material of the measurement of a subject in `mode`; `protocol` is [`Protocols::material`](super::Protocols::material).
pub fn measurement<'a>(
    setting: &Setting<'_>,
    subject: Key,
    mode: Mode,
    protocol: &'a serde_json::Value,
) -> MeasurementMaterial<'a> {
    MeasurementMaterial { subject, mode, protocol, clock_policy: setting.protocols.clocks.to_string() }
}

/// Key of the verification of `subject`; `None` for a kernel without a reference.
pub fn verification_key(setting: &Setting<'_>, subject: Key, prepared: &Prepared, reduced: &Prepared) -> Option<Key> {
    let reference = prepared.pipeline().reference.as_ref()?;
    let material = VerificationMaterial {
        subject,
        reference,
        reduced_launches: &reduced.pipeline().stages,
        reduced_buffers: &reduced.pipeline().buffers,
        max_rows: setting.protocols.verified_rows,
        seed: setting.protocols.verification_seed,
    };
    Some(material.key())
}

fn stage_build(package: &Package, instance: &Instance, index: usize) -> StageBuild {
    let cost = &instance.stages[index];
    let declared = &package.stages[cost.declared];
    let args = instance.pipeline.stages[index].args.iter().map(|arg| ArgType::of(arg, &instance.pipeline.buffers));
    StageBuild {
        language: package.id.language,
        package: package.folder.clone(),
        source: declared.source.clone(),
        hashes: declared.hashes.clone(),
        entry: declared.entry.clone(),
        args: args.collect(),
        defines: cost.defines.clone(),
        flags: declared.flags.clone(),
        dtype: instance.shape.dtype(),
    }
}
