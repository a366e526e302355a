//! The calling convention of C kernels: the caller that is compiled behind every stage's source. Pure text.
//!
//! The worker looks up [`caller_symbol`] in the compiled module and calls it once a block.

use serde::{Deserialize, Serialize};

use super::DType;
use super::pipeline::{Arg, Buffer, Stage};

/// Type of one declared argument of a stage's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
}

impl ArgType {
    /// Types of the arguments of `stage`, in order; `None` where one names a buffer that is not among `buffers`.
    pub fn of(stage: &Stage, buffers: &[Buffer]) -> Option<Vec<ArgType>> {
        let of = |arg: &Arg| match arg {
            Arg::Buffer(index) => buffers.get(*index).map(|buffer| ArgType::Tensor(buffer.dtype)),
            Arg::Int(_) => Some(ArgType::Int),
            Arg::Float(_) => Some(ArgType::Float),
            Arg::Block(axis) => Some(ArgType::Block(*axis)),
            Arg::Thread => Some(ArgType::Thread),
        };
        stage.args.iter().map(of).collect()
    }
}

/// Name of the exported function that calls `entry`. Its type in C is
/// `void (void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread)`, where `args[i]` points
/// to the value of the i-th declared argument (a pointer, an `int64_t` or a `double`); the slots of block indices and of
/// the thread are not read.
pub fn caller_symbol(entry: &str) -> String {
    format!("mlarun_call_{entry}")
}

/// C source of the translation unit of a stage: the file `include`, then the caller of its function `entry`.
///
/// A call whose types do not fit the function's parameters is a compile error; `const` elements are accepted.
pub fn caller_source(include: &str, entry: &str, args: &[ArgType]) -> String {
    let locals: String = args.iter().enumerate().map(|(index, arg)| local(index, *arg)).collect();
    let passed: Vec<String> = args.iter().enumerate().map(|(index, arg)| argument(index, *arg)).collect();
    let symbol = caller_symbol(entry);
    format!(
        r#"#include "{include}"
#include <stdint.h>

#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#pragma GCC diagnostic error "-Wint-conversion"
#pragma GCC diagnostic error "-Wconversion"

__attribute__((visibility("default")))
void {symbol}(void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread);
void {symbol}(void *const *args, int64_t block_x, int64_t block_y, int64_t block_z, int64_t thread)
{{
    (void)args, (void)block_x, (void)block_y, (void)block_z, (void)thread;
{locals}    {entry}({});
}}
"#,
        passed.join(", ")
    )
}

/// Declaration of the variable that holds argument `index`; nothing for an argument that the caller is passed itself.
fn local(index: usize, arg: ArgType) -> String {
    let c_type = match arg {
        ArgType::Tensor(dtype) => format!("{} *", element(dtype)),
        ArgType::Int => "int64_t ".to_owned(),
        ArgType::Float => "double ".to_owned(),
        ArgType::Block(_) | ArgType::Thread => return String::new(),
    };
    format!("    {c_type}const a{index} = *({c_type}*)args[{index}];\n")
}

fn argument(index: usize, arg: ArgType) -> String {
    match arg {
        ArgType::Tensor(_) | ArgType::Int | ArgType::Float => format!("a{index}"),
        ArgType::Block(0) => "block_x".to_owned(),
        ArgType::Block(1) => "block_y".to_owned(),
        ArgType::Block(_) => "block_z".to_owned(),
        ArgType::Thread => "thread".to_owned(),
    }
}

/// C type of a tensor's elements.
const fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::Float32 => "float",
        DType::Bfloat16 | DType::Float16 => "uint16_t",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_reads_values_and_passes_indices_on() {
        let args = [ArgType::Tensor(DType::Float32), ArgType::Int, ArgType::Block(0), ArgType::Float, ArgType::Thread];
        let source = caller_source("latent.c", "latent", &args);
        let body = source.split_once("(void)thread;\n").expect("the body follows").1;
        insta::assert_snapshot!(body, @r"
            float *const a0 = *(float **)args[0];
            int64_t const a1 = *(int64_t *)args[1];
            double const a3 = *(double *)args[3];
            latent(a0, a1, block_x, a3, thread);
        }
        ");
    }
}
