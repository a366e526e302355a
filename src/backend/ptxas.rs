//! What ptxas says about a kernel: registers, shared memory, stack and spills. Pure.

use std::collections::BTreeMap;

use crate::model::build::Resources;

/// Resources of every kernel in the messages of `--ptxas-options=-v`, by the kernel's name in machine code.
///
/// A kernel's lines follow the one that begins its compilation; functions that are no kernels have properties too, which
/// stand behind those of the kernel that they are part of and are left out.
pub fn resources(log: &str) -> BTreeMap<String, Resources> {
    let mut found: BTreeMap<String, Resources> = BTreeMap::new();
    let (mut kernel, mut properties_of) = (None, None);
    for line in log.lines() {
        if let Some(name) = between(line, "Compiling entry function '", "'") {
            kernel = Some(name);
            found.insert(name.to_owned(), Resources::default());
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            properties_of = Some(name.trim());
        } else if let Some(resources) = kernel.and_then(|name| found.get_mut(name)) {
            if line.contains("bytes stack frame") && (properties_of.is_none() || properties_of == kernel) {
                resources.stack_bytes = number_before(line, " bytes stack frame").unwrap_or_default();
                resources.spill_store_bytes = number_before(line, " bytes spill stores").unwrap_or_default();
                resources.spill_load_bytes = number_before(line, " bytes spill loads").unwrap_or_default();
            } else if line.contains(" registers") && line.contains("Used ") {
                let registers = number_before(line, " registers").unwrap_or_default();
                resources.registers = u32::try_from(registers).unwrap_or(u32::MAX);
                resources.shared_bytes = number_before(line, " bytes smem").unwrap_or_default();
            }
        }
    }
    found
}

fn between<'l>(line: &'l str, before: &str, after: &str) -> Option<&'l str> {
    Some(line.split_once(before)?.1.split_once(after)?.0)
}

/// The number that ends where `what` begins.
fn number_before(line: &str, what: &str) -> Option<u64> {
    let before = line.split_once(what)?.0;
    let digits = before.len() - before.trim_end_matches(|character: char| character.is_ascii_digit()).len();
    before[before.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'latent' for 'sm_90a'
ptxas info    : Function properties for latent
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 63.110 ms
ptxas info    : Compiling entry function '_Z7combinePfx' for 'sm_90a'
ptxas info    : Function properties for helper
    64 bytes stack frame, 64 bytes spill stores, 64 bytes spill loads
ptxas info    : Function properties for _Z7combinePfx
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 400 bytes cmem[0]
";

    #[test]
    fn every_kernel_has_its_own_resources() {
        let found = resources(LOG);
        let latent = Resources {
            registers: 168,
            shared_bytes: 1024,
            stack_bytes: 16,
            spill_store_bytes: 8,
            spill_load_bytes: 12,
        };
        assert_eq!(found["latent"], latent);
        assert_eq!(found["_Z7combinePfx"], Resources { registers: 24, ..Resources::default() });
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_log_without_kernels_has_no_resources() {
        assert!(resources("").is_empty());
        assert!(resources("ptxas info    : 0 bytes gmem\n    8 bytes stack frame\nUsed 3 registers\n").is_empty());
    }
}
