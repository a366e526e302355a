//! What was typed to what it means: overrides by device, names found in the catalog, defaults filled in.

use std::path::Path;

use super::experiment::{
    AnnotationOverrides, Baseline, ClockPolicy, Clocks, Devlog, EventOverrides, Experiment, NsysOverrides,
    ProtocolOverrides, Selection, TuningOverrides,
};
use super::read::version_selector;
use super::typed::{self, At, Listed, VersionSelector};
use super::{Document, Error, shapes};
use crate::catalog::{Catalog, LookupError, Package};
use crate::diagnostic::{self, Diagnostic, Place, suggestion};
use crate::model::{DeviceKind, KernelId, Language, Mode, Version};

const DEFAULT_ROUNDS: u32 = 8;
const DEFAULT_TIME_LIMIT_S: u32 = 600;

/// See [`super::resolve()`].
pub fn resolve(
    document: &Document,
    catalog: &Catalog,
    host: DeviceKind,
) -> Result<(Experiment, Vec<Diagnostic>), Error> {
    let effective = Effective::of(document, host);
    let mut resolver = Resolver {
        document,
        catalog,
        language: effective.language.map_or_else(|| default_language(host), |language| language.value),
        diagnostics: document.diagnostics.clone(),
    };
    let experiment = resolver.experiment(&effective);
    let mut diagnostics = resolver.diagnostics;
    diagnostic::sort(&mut diagnostics);
    let Some(experiment) = experiment.filter(|_| !diagnostics.iter().any(Diagnostic::is_error)) else {
        return Err(Error::Invalid(diagnostics));
    };
    if experiment.device == DeviceKind::Gpu && host == DeviceKind::Cpu {
        return Err(no_device(document, effective.language, experiment.language));
    }
    Ok((experiment, diagnostics))
}

fn default_language(host: DeviceKind) -> Language {
    match host {
        DeviceKind::Cpu => Language::C,
        DeviceKind::Gpu => Language::Cuda,
    }
}

fn no_device(document: &Document, typed: Option<&At<Language>>, language: Language) -> Error {
    let place = typed.map_or_else(|| Place::new(&document.file, 0..0), |language| language.at.clone());
    let diagnostic = Diagnostic::error(&place, format!("kernels in {language} need a GPU")).label("none on this host");
    let help = "say in a table `[target.cpu]` what runs instead, for example language = \"c\"";
    Error::NoDevice { language, diagnostic: Box::new(diagnostic.help(help)) }
}

/// The keys that hold on the host: the target's where it has them, else the experiment's.
struct Effective<'d> {
    language: Option<&'d At<Language>>,
    versions: Option<&'d Listed<VersionSelector>>,
    modes: Option<&'d Listed<Mode>>,
    baselines: Option<&'d Listed<typed::Baseline>>,
    shapes: Option<&'d At<typed::Shapes>>,
}

impl<'d> Effective<'d> {
    fn of(document: &'d Document, host: DeviceKind) -> Effective<'d> {
        let typed = &document.typed;
        let experiment = typed.experiment.as_ref();
        let target = typed.target.as_ref().and_then(|targets| match host {
            DeviceKind::Cpu => targets.cpu.as_ref(),
            DeviceKind::Gpu => targets.gpu.as_ref(),
        });
        Effective {
            language: target.and_then(|t| t.language.as_ref()).or(experiment.and_then(|e| e.language.as_ref())),
            versions: target.and_then(|t| t.versions.as_ref()).or(experiment.and_then(|e| e.versions.as_ref())),
            modes: target.and_then(|t| t.modes.as_ref()).or(experiment.and_then(|e| e.modes.as_ref())),
            baselines: target.and_then(|t| t.baselines.as_ref()).or(experiment.and_then(|e| e.baselines.as_ref())),
            shapes: target.and_then(|t| t.shapes.as_ref()).or(typed.shapes.as_ref()),
        }
    }
}

struct Resolver<'d> {
    document: &'d Document,
    catalog: &'d Catalog,
    language: Language,
    diagnostics: Vec<Diagnostic>,
}

impl<'d> Resolver<'d> {
    /// `None` only after an error.
    fn experiment(&mut self, effective: &Effective<'d>) -> Option<Experiment> {
        let typed = &self.document.typed;
        let experiment = typed.experiment.as_ref()?;
        let kernels_typed = experiment.kernels.as_ref()?;
        let (kernels, packages) = self.kernels(kernels_typed, effective.versions);
        let baselines = effective.baselines.map(|listed| self.baselines(listed)).unwrap_or_default();
        let none = At { value: typed::Shapes::default(), at: kernels_typed.at.clone() };
        let shapes = shapes::expand(effective.shapes.unwrap_or(&none), &packages, &mut self.diagnostics);
        let modes = effective.modes.map_or_else(|| vec![Mode::Annotation], |listed| self.modes(listed));
        let protocol = typed.protocol.as_ref();
        if let Some(stage) = protocol.and_then(|protocol| protocol.ncu.as_ref()?.stage.as_ref()) {
            self.check_stage(stage, &packages);
        }
        Some(Experiment {
            name: experiment.name.as_ref()?.value.clone(),
            description: experiment.description.as_ref().map(|text| text.value.clone()).unwrap_or_default(),
            language: self.language,
            device: self.language.device(),
            kernels,
            modes,
            baselines,
            shapes: shapes?,
            clocks: clocks(typed.clocks.as_ref()),
            rounds: number(&experiment.rounds).unwrap_or(DEFAULT_ROUNDS),
            protocol: protocol.map(overrides).unwrap_or_default(),
            time_limit_s: number(&experiment.time_limit_s).unwrap_or(DEFAULT_TIME_LIMIT_S),
            devlog: devlog(typed.devlog.as_ref()),
        })
    }

    /// Every kernel must have the stage.
    fn check_stage(&mut self, stage: &At<String>, packages: &[&Package]) {
        let has = |package: &&&Package| package.stages.iter().any(|declared| declared.name == stage.value);
        if let Some(package) = packages.iter().find(|package| !has(package)) {
            let message = format!("{} has no stage `{}`", package.id, stage.value);
            let names: Vec<&str> = package.stages.iter().map(|stage| stage.name.as_str()).collect();
            let diagnostic = Diagnostic::error(&stage.at, message).label("profiled alone in ncu mode");
            self.diagnostics.push(diagnostic.help(format!("its stages are {}", names.join(", "))));
        }
    }

    /// Warns of what is listed twice and keeps it once.
    fn once<T: PartialEq>(&mut self, kept: &mut Vec<T>, value: T, at: &Place, what: &str) {
        if kept.contains(&value) {
            self.diagnostics.push(Diagnostic::warning(at, format!("{what} is listed twice")).label("kept once"));
        } else {
            kept.push(value);
        }
    }

    fn modes(&mut self, listed: &Listed<Mode>) -> Vec<Mode> {
        let mut modes = Vec::new();
        for mode in &listed.values {
            self.once(&mut modes, mode.value, &mode.at, &format!("the mode {}", mode.value));
        }
        modes
    }

    /// The selected versions, and their packages.
    fn kernels(
        &mut self,
        listed: &Listed<String>,
        versions: Option<&Listed<VersionSelector>>,
    ) -> (Vec<Selection>, Vec<&'d Package>) {
        let mut names: Vec<String> = Vec::new();
        let (mut selections, mut packages) = (Vec::new(), Vec::new());
        for kernel in &listed.values {
            let before = names.len();
            self.once(&mut names, kernel.value.clone(), &kernel.at, &format!("the kernel {}", kernel.value));
            if names.len() == before || !self.known(kernel) {
                continue;
            }
            let versions = self.versions(kernel, versions);
            for (version, at) in &versions {
                packages.extend(self.package(&kernel.value, *version, at));
            }
            let versions = versions.into_iter().map(|(version, _)| version).collect();
            selections.push(Selection { kernel: kernel.value.clone(), versions });
        }
        (selections, packages)
    }

    /// Reports a kernel that the catalog does not have in the language.
    fn known(&mut self, kernel: &At<String>) -> bool {
        let name = kernel.value.as_str();
        if self.catalog.latest(self.language, name).is_some() {
            return true;
        }
        let elsewhere = Language::ALL.into_iter().find(|&language| self.catalog.latest(language, name).is_some());
        let help = match elsewhere {
            Some(language) => Some(format!("there is one in {language}: set language = \"{language}\"")),
            None => suggestion(name, self.catalog.kernels(self.language)),
        };
        let message = format!("there is no kernel `{name}` in {}", self.language);
        self.diagnostics.push(Diagnostic::error(&kernel.at, message).label("unknown kernel").maybe_help(help));
        false
    }

    /// The selected versions of a known kernel, each once, with the place that names it.
    fn versions(&mut self, kernel: &At<String>, listed: Option<&Listed<VersionSelector>>) -> Vec<(Version, Place)> {
        let base = [At { value: VersionSelector::Base, at: kernel.at.clone() }];
        let selectors = listed.map_or(&base[..], |listed| &listed.values);
        let mut versions: Vec<(Version, Place)> = Vec::new();
        for selector in selectors {
            for version in self.selected(&kernel.value, selector) {
                if !versions.iter().any(|(known, _)| *known == version) {
                    versions.push((version, selector.at.clone()));
                }
            }
        }
        versions
    }

    fn selected(&mut self, kernel: &str, selector: &At<VersionSelector>) -> Vec<Version> {
        let known = self.catalog.versions(self.language, kernel);
        let wanted = match selector.value {
            VersionSelector::All => return known,
            VersionSelector::Latest => known.last().copied().unwrap_or(Version::BASE),
            VersionSelector::Base => Version::BASE,
            VersionSelector::Exact(version) => version,
        };
        if known.contains(&wanted) {
            return vec![wanted];
        }
        let names: Vec<String> = known.iter().map(Version::to_string).collect();
        let message = format!("{kernel} has no version {wanted} in {}", self.language);
        let diagnostic = Diagnostic::error(&selector.at, message).label("unknown version");
        let help =
            format!("its versions are {}; its latest is {}", names.join(", "), names.last().map_or("", |name| name));
        self.diagnostics.push(diagnostic.help(help));
        Vec::new()
    }

    /// The package of a version that exists; a broken one is reported with what is wrong with it.
    fn package(&mut self, kernel: &str, version: Version, at: &Place) -> Option<&'d Package> {
        let id = KernelId { kernel: kernel.to_owned(), version, language: self.language };
        match self.catalog.package(&id) {
            Ok(package) => Some(package),
            Err(LookupError::Broken { diagnostics, .. }) => {
                let message = format!("the package of {id} is broken");
                self.diagnostics.push(Diagnostic::error(at, message).label("used here"));
                self.diagnostics.extend(diagnostics);
                None
            }
            Err(unknown) => {
                self.diagnostics.push(Diagnostic::error(at, unknown.to_string()));
                None
            }
        }
    }

    fn baselines(&mut self, listed: &Listed<typed::Baseline>) -> Vec<Baseline> {
        let mut baselines = Vec::new();
        for typed in &listed.values {
            if let Some(baseline) = self.baseline(typed) {
                self.once(&mut baselines, baseline, &typed.at, "the baseline");
            }
        }
        baselines
    }

    fn baseline(&mut self, typed: &At<typed::Baseline>) -> Option<Baseline> {
        match &typed.value {
            typed::Baseline::Text(text) => self.baseline_text(text, &typed.at),
            typed::Baseline::Kernel { kernel, version } => self.baseline_kernel(kernel, version.as_ref()),
            typed::Baseline::File(path) => self.baseline_file(&path.value, &path.at),
        }
    }

    fn baseline_text(&mut self, text: &str, at: &Place) -> Option<Baseline> {
        if text == "previous" {
            return Some(Baseline::Previous);
        }
        if text.contains('/') || text.ends_with(".json") {
            return self.baseline_file(text, at);
        }
        let Some((kernel, version)) = text.split_once('@') else {
            return self.baseline_name(text, at);
        };
        let Some(version) = version_selector(version) else {
            let message = format!("`{version}` is not a version");
            let diagnostic = Diagnostic::error(at, message).label("after the `@`");
            self.diagnostics
                .push(diagnostic.help("write for example flash_mla@v1, flash_mla@latest or flash_mla@base"));
            return None;
        };
        let kernel = At { value: kernel.to_owned(), at: at.clone() };
        self.baseline_kernel(&kernel, Some(&At { value: version, at: at.clone() }))
    }

    /// A bare word: a kernel's latest version.
    fn baseline_name(&mut self, name: &str, at: &Place) -> Option<Baseline> {
        if self.catalog.latest(self.language, name).is_none() {
            let message = format!("`{name}` is neither `previous` nor a kernel in {}", self.language);
            let help = suggestion(name, self.catalog.kernels(self.language).chain(["previous"]));
            self.diagnostics.push(Diagnostic::error(at, message).label("unknown baseline").maybe_help(help));
            return None;
        }
        self.baseline_kernel(&At { value: name.to_owned(), at: at.clone() }, None)
    }

    fn baseline_kernel(&mut self, kernel: &At<String>, version: Option<&At<VersionSelector>>) -> Option<Baseline> {
        if !self.known(kernel) {
            return None;
        }
        let latest = At { value: VersionSelector::Latest, at: kernel.at.clone() };
        let selector = version.unwrap_or(&latest);
        let selected = self.selected(&kernel.value, selector);
        match selected.as_slice() {
            [version] => {
                self.package(&kernel.value, *version, &selector.at)?;
                Some(Baseline::Kernel { kernel: kernel.value.clone(), version: *version })
            }
            [] => None,
            _ => {
                let message = "a baseline is one version of a kernel";
                self.diagnostics.push(Diagnostic::error(&selector.at, message).label("these are several"));
                None
            }
        }
    }

    fn baseline_file(&mut self, path: &str, at: &Place) -> Option<Baseline> {
        let path = self.document.path.parent().unwrap_or(Path::new("")).join(path);
        if path.is_file() {
            return Some(Baseline::File(path));
        }
        let message = format!("there is no recorded result {}", path.display());
        let diagnostic = Diagnostic::error(at, message).label("no such file");
        self.diagnostics.push(diagnostic.help("paths start at the manifest's folder"));
        None
    }
}

fn number(typed: &Option<At<u32>>) -> Option<u32> {
    typed.as_ref().map(|number| number.value)
}

fn clocks(typed: Option<&typed::Clocks>) -> Clocks {
    let policy = typed.and_then(|clocks| clocks.policy.as_ref()).map_or(ClockPolicy::Lock, |policy| policy.value);
    Clocks {
        policy,
        sm_mhz: typed.and_then(|clocks| number(&clocks.sm_mhz)),
        mem_mhz: typed.and_then(|clocks| number(&clocks.mem_mhz)),
    }
}

fn overrides(typed: &typed::Protocol) -> ProtocolOverrides {
    const NS_PER_MS: u64 = 1_000_000;
    const NS_PER_S: u64 = 1_000_000_000;
    let ns = |typed: &Option<At<u32>>, unit: u64| number(typed).map(|number| u64::from(number) * unit);
    let event = typed.event.as_ref().map(|event| EventOverrides {
        timings: event.timings.as_ref().map(|listed| listed.values.iter().map(|timing| timing.value).collect()),
        budget_ns: ns(&event.budget_ms, NS_PER_MS),
        min_samples: number(&event.min_samples),
        max_samples: number(&event.max_samples),
        warmup_ns: ns(&event.warmup_ms, NS_PER_MS),
    });
    let annotation = typed.annotation.as_ref().map(|annotation| AnnotationOverrides {
        budget_ns: ns(&annotation.budget_ms, NS_PER_MS),
        min_samples: number(&annotation.min_samples),
        max_samples: number(&annotation.max_samples),
    });
    let tuning = typed.tuning.as_ref().map(|tuning| TuningOverrides {
        budget_ns: ns(&tuning.budget_s, NS_PER_S),
        limit: number(&tuning.limit),
        seed: number(&tuning.seed).map(u64::from),
    });
    let nsys = typed.nsys.as_ref().map(|nsys| NsysOverrides {
        tool: nsys.tool.as_ref().map(|tool| tool.value),
        launches: number(&nsys.launches),
    });
    ProtocolOverrides {
        nsys: nsys.unwrap_or_default(),
        event: event.unwrap_or_default(),
        annotation: annotation.unwrap_or_default(),
        ncu_stage: typed.ncu.as_ref().and_then(|ncu| ncu.stage.as_ref()).map(|stage| stage.value.clone()),
        tuning: tuning.unwrap_or_default(),
    }
}

fn devlog(typed: Option<&typed::Devlog>) -> Devlog {
    let devices = typed.and_then(|devlog| devlog.devices.as_ref());
    Devlog {
        devices: devices
            .map(|listed| listed.values.iter().map(|device| device.value.clone()).collect())
            .unwrap_or_default(),
    }
}
