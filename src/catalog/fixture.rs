//! Small packages that tests write into temporary folders.

use std::path::Path;

use tempfile::TempDir;

/// A sound package in which every part of the format occurs once.
pub const KERNEL: &str = r#"schema = 1
description = "A fixture"

[parameters]
s = { type = "int", min = 1, default = 1, doc = "rows" }
t = { type = "int", min = 1, max = 1000000, default = 256, doc = "columns" }
dtype = { type = "dtype", allowed = ["float32", "bfloat16"], default = "float32" }
causal = { type = "bool", default = false }
alpha = { type = "float", default = 1.5 }
n = { type = "int", min = 0, default = "t / 4", candidates = [0, "t / 8", "t / 4"] }

[lets]
w = "size_of(dtype)"
row = "w * t"

[tensors.x]
role = "input"
dtype = "dtype"
shape = ["s", "t"]
normal = { std = 1.0, seed = 1 }
[tensors.y]
role = "input"
dtype = "float32"
shape = ["t"]
uniform = { low = -1, high = "1.0", seed = 2 }
[tensors.xt]
role = "derived"
dtype = "dtype"
shape = ["t", "s"]
einsum = { spec = "st->ts", of = [{ tensor = "x", start = { t = 0 } }] }
[tensors.part]
role = "scratch"
dtype = "float32"
shape = ["s", "tile.split"]
[tensors.o]
role = "output"
dtype = "dtype"
shape = ["s"]

[space]
choices = { split = [1, 2] }
constraints = ["tile.split <= t"]
default = { split = 1 }

[[stages]]
name = "sum"
source = "sum.c"
headers = ["../../common/shared.h"]
entry = "sum"
args = ["x", "y", "part", "s", "tile.split", "alpha", "causal", "block.x", "thread"]
grid = ["s", "tile.split"]
threads = "tile.threads"
stream = 1
flops = "2 * s * t"
bytes = "row * s"
defines = { BLOCK = "tile.block" }
flags = ["-ffast-math"]
[stages.space]
choices = { block = [16, 32], threads = [1, "cores"] }
constraints = ["tile.block <= 2 * t"]
default = { block = 16, threads = "cores" }

[[stages]]
name = "join"
source = "sum.c"
entry = "join"
args = ["part", "o"]
grid = [1]
after = ["sum"]
when = "tile.split > 1"
flops = 0
bytes = 0

[reference]
kind = "einsum"
spec = "st,t->s"
of = ["x", "y"]
output = "o"
[reference.tolerance]
float32 = { frobenius = 1e-6, row = 1e-5 }

[reduced]
t = 67
dtype = "bfloat16"
"#;

/// A package's text as one in CUDA has it.
pub fn cuda(text: &str) -> String {
    let text = text.replace("threads = \"tile.threads\"", "block = [128]").replace(", \"block.x\", \"thread\"]", "]");
    text.replace("\"cores\"", "\"sms\"")
        .replace("-ffast-math", "--use_fast_math")
        .replace("grid = [1]", "grid = [1]\nblock = [32, 2]\nshared = 1024")
}

/// A project with `kernel.toml` texts by folder below `kernels/`, their sources and a shared header. Texts in the folder of
/// CUDA are translated.
pub fn project(packages: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for language in ["c", "cuda"] {
        write(root.path(), &format!("kernels/{language}/common/shared.h"), "");
    }
    for (folder, text) in packages {
        let text = if folder.starts_with("cuda/") { cuda(text) } else { (*text).to_owned() };
        write(root.path(), &format!("kernels/{folder}/kernel.toml"), &text);
        write(root.path(), &format!("kernels/{folder}/sum.c"), "void sum(void) {}");
    }
    root
}

/// Writes a file with its folders.
pub fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folders");
    std::fs::write(path, text).expect("a file");
}
