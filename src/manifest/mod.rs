use crate::model::*;
pub enum Baseline { Previous, Kernel{kernel:String, version:Version}, Recorded(std::path::PathBuf)}
impl std::fmt::Display for Baseline { fn fmt(&self, f:&mut std::fmt::Formatter)->std::fmt::Result{f.write_str("x")}}
pub struct Selection{pub kernel:String,pub versions:Vec<Version>}
pub struct Experiment { pub language: Language, pub kernels: Vec<Selection>, pub modes: Vec<Mode>, pub baselines: Vec<Baseline>, pub shapes: Vec<Shape>}
