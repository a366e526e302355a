//! The calling convention between the worker and a compiled stage. Pure: makes text, compiles nothing.
//!
//! A stage's module is one translation unit: the stage's source, then what holds its function to the declared arguments.
//! In C that is a caller with a signature that is the same for every stage, so that the worker needs no foreign function
//! of unknown type; in CUDA, whose driver is given untyped pointers to the arguments, an assertion about their types.

use serde::{Deserialize, Serialize};

use super::pipeline::{Arg, Buffer};
use super::{DType, Language};

/// Type of one declared argument of a stage's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgType {
    /// Pointer to the elements of a tensor.
    Tensor(DType),
    /// `int64_t`
    Int,
    /// `double`
    Float,
    /// `int64_t`: the block's index along an axis (0: x, 1: y, 2: z).
    Block(u8),
    /// `int64_t`: the thread that runs the block.
    Thread,
    /// `CUtensorMap`, by value; CUDA alone.
    Map,
}

impl ArgType {
    /// Type of `arg`, whose buffer is one of `buffers`.
    ///
    /// # Panics
    /// When the argument names a buffer that `buffers` does not hold.
    pub fn of(arg: &Arg, buffers: &[Buffer]) -> ArgType {
        match arg {
            Arg::Buffer(buffer) => ArgType::Tensor(buffers[*buffer].dtype),
            Arg::Int(_) => ArgType::Int,
            Arg::Float(_) => ArgType::Float,
            Arg::Block(axis) => ArgType::Block(*axis),
            Arg::Thread => ArgType::Thread,
            Arg::Map(_) => ArgType::Map,
        }
    }
}

/// The whole translation unit of a stage: the file `include`, then what holds its function `entry` to `args`.
pub fn unit_source(language: Language, include: &str, entry: &str, args: &[ArgType]) -> String {
    match language {
        Language::C => caller_source(include, entry, args),
        Language::Cuda => asserted_source(include, entry, args),
    }
}

/// The translation unit of a CUDA stage: it does not compile where the parameters of the `__global__` function `entry`
/// differ from the declared arguments. `const` in front of what a pointer points to makes no difference. Its names are
/// long and in lower case, as the macros of kernels are short and in capitals.
pub fn asserted_source(include: &str, entry: &str, args: &[ArgType]) -> String {
    let include = include.replace('\\', "\\\\").replace('"', "\\\"");
    let types: Vec<&str> = args.iter().map(|arg| cuda_type(*arg)).collect();
    let types = types.join(", ");
    let plain = if args.contains(&ArgType::Map) { PLAIN_WITH_MAPS } else { PLAIN };
    format!(
        r#"#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "{include}"
namespace mlarun {{
{plain}template <class type_1> struct plain<const type_1 *> {{ using type = type_1 *; }};
template <class...> struct list {{}};
template <class> struct parameters;
template <class... types> struct parameters<void (*)(types...)> {{ using type = list<typename plain<types>::type...>; }};
template <class type_1, class type_2> struct same {{ static constexpr bool value = false; }};
template <class type_1> struct same<type_1, type_1> {{ static constexpr bool value = true; }};
static_assert(same<parameters<decltype(&::{entry})>::type, list<{types}>>::value,
              "the parameters of {entry} differ from the declared args: ({types})");
}}
"#
    )
}

/// What a type of a parameter stands for: itself.
const PLAIN: &str = "template <class type_1> struct plain { using type = type_1; };\n";

/// The same where a parameter is a tensor map: whatever has its size and alignment. Kernels define it themselves where
/// they do without CUDA's header.
const PLAIN_WITH_MAPS: &str = "\
struct tensor_map {};
template <class type_1, bool is_map> struct plain_or_map { using type = type_1; };
template <class type_1> struct plain_or_map<type_1, true> { using type = tensor_map; };
template <class type_1> struct plain : plain_or_map<type_1, sizeof(type_1) == 128 && alignof(type_1) >= 64> {};
";

/// Type of an argument in CUDA C++.
const fn cuda_type(arg: ArgType) -> &'static str {
    match arg {
        ArgType::Tensor(DType::Float32) => "float *",
        ArgType::Tensor(DType::Bfloat16) => "__nv_bfloat16 *",
        ArgType::Tensor(DType::Float16) => "__half *",
        ArgType::Int | ArgType::Block(_) | ArgType::Thread => "long long",
        ArgType::Float => "float",
        ArgType::Map => "tensor_map",
    }
}

/// Name of the generated caller of the function `entry`, of C type
/// `void (void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread)`.
///
/// `args[i]` points to the value of the i-th declared argument (a pointer for a buffer, an `int64_t`, a `double`);
/// those of block and thread arguments are not read.
pub fn caller_symbol(entry: &str) -> String {
    format!("mlarun_call_{entry}")
}

/// The whole translation unit of a stage: the file `include`, then the caller of its function `entry`.
///
/// It does not compile where the function's parameters differ from the declared arguments in number, in pointed-to type
/// or by a conversion that may change a value, or where the function returns something.
pub fn caller_source(include: &str, entry: &str, args: &[ArgType]) -> String {
    let include = include.replace('\\', "\\\\").replace('"', "\\\"");
    let values: Vec<String> = args.iter().enumerate().map(|(index, arg)| value(index, *arg)).collect();
    let call = format!("{entry}({})", values.join(", "));
    let symbol = caller_symbol(entry);
    format!(
        r#"#include "{include}"
#include <stdint.h>
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#pragma GCC diagnostic error "-Wint-conversion"
#pragma GCC diagnostic error "-Wconversion"
#pragma GCC diagnostic error "-Wimplicit-function-declaration"
void {symbol}(void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread);
__attribute__((visibility("default")))
void {symbol}(void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread)
{{
    (void)args, (void)block_x, (void)block_y, (void)block_z, (void)thread;
    _Static_assert(__builtin_types_compatible_p(__typeof__({call}), void), "{entry} must return void");
    {call};
}}
#pragma GCC diagnostic pop
"#
    )
}

fn value(index: usize, arg: ArgType) -> String {
    match arg {
        ArgType::Tensor(dtype) => format!("*({} *const *)args[{index}]", element_type(dtype)),
        ArgType::Int => format!("*(const int64_t *)args[{index}]"),
        ArgType::Float => format!("*(const double *)args[{index}]"),
        ArgType::Block(0) => "block_x".to_owned(),
        ArgType::Block(1) => "block_y".to_owned(),
        ArgType::Block(_) => "block_z".to_owned(),
        ArgType::Thread => "thread".to_owned(),
        // Packages in C declare none: whoever does so gets a message of the compiler's.
        ArgType::Map => "tensor_map".to_owned(),
    }
}

/// C type of an element in memory; C of common compilers has no 16-bit floats that it can calculate with.
const fn element_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Float32 => "float",
        DType::Bfloat16 | DType::Float16 => "uint16_t",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGS: [ArgType; 6] = [
        ArgType::Tensor(DType::Bfloat16),
        ArgType::Tensor(DType::Float32),
        ArgType::Int,
        ArgType::Float,
        ArgType::Block(0),
        ArgType::Thread,
    ];

    #[test]
    fn every_argument_is_passed_with_its_type() {
        let text = caller_source("dir/a \"b\".c", "scale", &ARGS);
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
            let folder = tempfile::tempdir().expect("a temporary folder");
            std::fs::write(folder.path().join("k.c"), format!("{TYPES}{function}")).expect("it is written");
            let unit = folder.path().join("unit.c");
            std::fs::write(&unit, caller_source("k.c", "scale", &ARGS)).expect("it is written");
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
