//! The calling convention between the worker and a compiled C stage: the name and the text of the generated caller.
//!
//! A stage's module is one translation unit: the stage's source, then a caller with a signature that is the same for
//! every stage, so that the worker needs no foreign function of unknown type. Pure: makes text, compiles nothing.

use std::fmt::Write as _;

use super::DType;
use super::pipeline::{Arg, Buffer, Stage};

/// Name of the generated caller of the function `entry`, of C type
/// `void (void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread)`.
///
/// `args[i]` points to the value of the i-th declared argument (a pointer for a buffer, an `int64_t`, a `double`);
/// those of block and thread arguments are not read.
pub fn caller_symbol(entry: &str) -> String {
    format!("mlarun_call_{entry}")
}

/// The whole translation unit: `source` (as the compiler is to find it) included, then the caller.
pub fn translation_unit(source: &str, stage: &Stage, buffers: &[Buffer]) -> String {
    let quoted = source.replace('\\', "\\\\").replace('"', "\\\"");
    format!("#include \"{quoted}\"\n{}", caller_source(stage, buffers))
}

/// C text of the caller of `stage`. It does not compile where the function's parameters differ from the declared
/// arguments in number, in pointed-to type or by a conversion that may change a value, or where it returns something.
///
/// # Panics
/// When an argument names a buffer that `buffers` does not hold.
pub fn caller_source(stage: &Stage, buffers: &[Buffer]) -> String {
    const CHECKS: [&str; 4] =
        ["incompatible-pointer-types", "int-conversion", "conversion", "implicit-function-declaration"];
    let mut text = String::from("#include <stdint.h>\n#pragma GCC diagnostic push\n");
    for check in CHECKS {
        let _ = writeln!(text, "#pragma GCC diagnostic error \"-W{check}\"");
    }
    let values: Vec<String> = stage.args.iter().enumerate().map(|(index, arg)| value(index, arg, buffers)).collect();
    let call = format!("{}({})", stage.entry, values.join(", "));
    let _ = write!(
        text,
        "void {symbol}(void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread);\n\
         __attribute__((visibility(\"default\")))\n\
         void {symbol}(void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread)\n\
         {{\n    (void)args, (void)block_x, (void)block_y, (void)block_z, (void)thread;\n    \
         _Static_assert(__builtin_types_compatible_p(__typeof__({call}), void), \"{entry} must return void\");\n    \
         {call};\n}}\n\
         #pragma GCC diagnostic pop\n",
        symbol = caller_symbol(&stage.entry),
        entry = stage.entry,
    );
    text
}

fn value(index: usize, arg: &Arg, buffers: &[Buffer]) -> String {
    match arg {
        Arg::Buffer(buffer) => format!("*({} *const *)args[{index}]", element_type(buffers[*buffer].dtype)),
        Arg::Int(_) => format!("*(const int64_t *)args[{index}]"),
        Arg::Float(_) => format!("*(const double *)args[{index}]"),
        Arg::Block(0) => "block_x".to_owned(),
        Arg::Block(1) => "block_y".to_owned(),
        Arg::Block(_) => "block_z".to_owned(),
        Arg::Thread => "thread".to_owned(),
    }
}

/// C type of an element in memory; C of common compilers has no 16-bit floats that it can calculate with.
pub const fn element_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Float32 => "float",
        DType::Bfloat16 | DType::Float16 => "uint16_t",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pipeline::Role;

    fn stage() -> (Stage, Vec<Buffer>) {
        let buffer = |dtype| Buffer { name: "x".into(), dtype, dims: vec![4], role: Role::Output };
        let args = vec![Arg::Buffer(1), Arg::Buffer(0), Arg::Int(3), Arg::Float(0.5), Arg::Block(0), Arg::Thread];
        let stage = Stage {
            name: "s".into(),
            entry: "scale".into(),
            args,
            grid: [1, 1, 1],
            threads: 1,
            stream: 0,
            after: vec![],
        };
        (stage, vec![buffer(DType::Float32), buffer(DType::Bfloat16)])
    }

    #[test]
    fn every_argument_is_passed_with_its_type() {
        let (stage, buffers) = stage();
        let text = translation_unit("dir/a \"b\".c", &stage, &buffers);
        assert!(text.starts_with("#include \"dir/a \\\"b\\\".c\"\n"), "{text}");
        let call = "scale(*(uint16_t *const *)args[0], *(float *const *)args[1], *(const int64_t *)args[2], \
                    *(const double *)args[3], block_x, thread);";
        assert!(text.contains(call), "{text}");
        assert!(text.contains("void mlarun_call_scale(void *const *args"), "{text}");
    }

    #[test]
    fn the_compiler_refuses_what_differs_from_the_declaration() {
        const TYPES: &str = "#include <stdint.h>\n";
        let compiles = |function: &str| {
            let (stage, buffers) = stage();
            let folder = tempfile::tempdir().expect("a temporary folder");
            std::fs::write(folder.path().join("k.c"), format!("{TYPES}{function}")).expect("it is written");
            let unit = folder.path().join("unit.c");
            std::fs::write(&unit, translation_unit("k.c", &stage, &buffers)).expect("it is written");
            let mut cc = std::process::Command::new("cc");
            cc.arg("-std=gnu11").arg("-fsyntax-only").arg(&unit).stderr(std::process::Stdio::null());
            cc.status().expect("cc runs").success()
        };
        assert!(compiles("void scale(uint16_t *a, const float *b, int64_t n, double f, int64_t x, int64_t t) {}"));
        for wrong in [
            "void scale(float *a, const float *b, int64_t n, double f, int64_t x, int64_t t) {}",
            "void scale(uint16_t *a, const float *b, int n, double f, int64_t x, int64_t t) {}",
            "void scale(uint16_t *a, const float *b, int64_t n, float f, int64_t x, int64_t t) {}",
            "void scale(uint16_t *a, const float *b, double f, int64_t n, int64_t x, int64_t t) {}",
            "void scale(uint16_t *a, const float *b, int64_t n, double f, int64_t x) {}",
            "int scale(uint16_t *a, const float *b, int64_t n, double f, int64_t x, int64_t t) { return 0; }",
            "void other(void) {}",
        ] {
            assert!(!compiles(wrong), "{wrong}");
        }
    }
}
