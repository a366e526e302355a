//! Which flags a package may give its compiler: those that change what is made of a source, none that reads or writes a
//! further file. Pure.

use crate::model::Language;

/// Words in options of gcc, clang and NVRTC that write files of their own, load code or bring in what was not declared.
const REFUSED: [&str; 18] = [
    "coverage",
    "crash",
    "debug",
    "diagnostics",
    "dump",
    "include",
    "info",
    "llvm",
    "module",
    "output",
    "pch",
    "plugin",
    "profile",
    "record",
    "report",
    "save",
    "time",
    "usage",
];

/// Whether a package in `language` may have `flag`.
pub fn is_allowed(flag: &str, language: Language) -> bool {
    if flag.starts_with("-D") || flag.starts_with("-U") {
        return flag.len() > 2;
    }
    let kinds: &[&str] = match language {
        Language::C => &["-O", "-f", "-m", "-W", "-std="],
        Language::Cuda => &["--"],
    };
    // Options of the preprocessor, the assembler and the linker stand behind these.
    let passes_on = ["-Wp", "-Wa", "-Wl"].iter().any(|prefix| flag.starts_with(prefix));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,".contains(c);
    kinds.iter().any(|kind| flag.starts_with(kind) && flag.len() > kind.len())
        && flag.chars().all(plain)
        && !passes_on
        && !REFUSED.iter().any(|word| flag.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_code_is_allowed_and_what_names_a_file_is_not() {
        for flag in
            ["-O2", "-ffast-math", "-fno-tree-slp-vectorize", "-mavx512f", "-std=gnu17", "-Wno-psabi", "-DX=\"a/b\""]
        {
            assert!(is_allowed(flag, Language::C), "{flag}");
        }
        for flag in ["--use_fast_math", "--maxrregcount=128", "--ftz=true", "-DX", "--extra-device-vectorization"] {
            assert!(is_allowed(flag, Language::Cuda), "{flag}");
        }
        for flag in [
            "-o",
            "x",
            "",
            "-",
            "-f",
            "-D",
            "@file",
            "../x",
            "-Wl,-Map=x",
            "-Wp,-MD,x",
            "-Wa,-a=x",
            "-MF",
            "-MMD",
            "-include",
            "-I..",
            "-B.",
            "-save-temps",
            "-fplugin=x",
            "-fdump-tree-all",
            "-fprofile-generate",
            "-fopt-info-all=x",
            "-fstack-usage",
            "-fcallgraph-info",
            "-ftime-trace",
            "-mllvm",
            "-specs=x",
            "-wrapper",
            "-O/x",
            "-gsplit-dwarf",
        ] {
            assert!(!is_allowed(flag, Language::C), "{flag}");
        }
        for flag in
            ["--time=x", "--fdevice-time-trace=x", "--create-pch=x", "--pch-dir=x", "--include-path=x", "-I.", "--"]
        {
            assert!(!is_allowed(flag, Language::Cuda), "{flag}");
        }
    }
}
