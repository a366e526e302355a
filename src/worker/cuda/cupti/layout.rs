//! Activity records of CUPTI, read by the offsets of their fields: the layouts of CUDA 12 and of CUDA 13.0, whose records
//! differ only behind what is read here.
//!
//! | fields | kernel | copy | fill | call |
//! |---|---|---|---|---|
//! | start, end | 16, 24 | 16, 24 | 16, 24 | 8, 16 |
//! | device, context, stream | 40, 44, 48 | 32, 36, 40 | 32, 36, 40 | |
//! | correlation | 92 | 44 | 44 | 32 |
//! | others | name 104 | kind 4, bytes 8 | bytes 8 | function 4, process 24, thread 28 |

use super::Traced;

/// Kinds of activities that are collected, as CUPTI numbers them.
pub const MEMCPY: u32 = 1;
pub const MEMSET: u32 = 2;
pub const DRIVER: u32 = 4;
pub const RUNTIME: u32 = 5;
/// Of kernels that may run beside one another: unlike the older kind, it does not make them wait for each other.
pub const CONCURRENT_KERNEL: u32 = 10;
/// All of them.
pub const KINDS: [u32; 5] = [CONCURRENT_KERNEL, MEMCPY, MEMSET, DRIVER, RUNTIME];

/// Bytes of the longest part of a record that is read; every record of a known version has as many as its own part needs.
const KERNEL_BYTES: usize = 112;
const COPY_BYTES: usize = 48;
const CALL_BYTES: usize = 36;

/// Whether the records of this version of CUPTI are laid out as described above.
pub const fn is_known(version: u32) -> bool {
    // 19 is CUDA 12.0's, 28 that of 12.9 update 1; from 13.0 on the number is that of the toolkit.
    matches!(version, 19..=28 | 130_000..=130_099)
}

/// Bytes of a record of `kind` that are read; `None` for a kind that is not.
pub const fn bytes_of(kind: u32) -> Option<usize> {
    match kind {
        CONCURRENT_KERNEL => Some(KERNEL_BYTES),
        MEMCPY | MEMSET => Some(COPY_BYTES),
        DRIVER | RUNTIME => Some(CALL_BYTES),
        _ => None,
    }
}

/// What a record says, but for names, which are elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    pub traced: Traced,
    pub start_ns: u64,
    pub end_ns: u64,
    pub correlation: u32,
}

/// Reads the bytes of a record of `kind`; `None` where it is none that is known, or too short.
pub fn read(kind: u32, record: &[u8]) -> Option<Fields> {
    let number = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let place = |at: usize| Some([number(at)?, number(at + 4)?, number(at + 8)?]);
    let (traced, times, correlation) = match kind {
        CONCURRENT_KERNEL => (Traced::Kernel { place: place(40)?, name: long(104)? as usize }, 16, 92),
        MEMCPY => (Traced::Copy { place: place(32)?, bytes: long(8)?, kind: *record.get(4)? }, 16, 44),
        MEMSET => (Traced::Fill { place: place(32)?, bytes: long(8)? }, 16, 44),
        DRIVER | RUNTIME => {
            let is_driver = kind == DRIVER;
            (Traced::Call { is_driver, function: number(4)?, process: number(24)?, thread: number(28)? }, 8, 32)
        }
        _ => return None,
    };
    Some(Fields { traced, start_ns: long(times)?, end_ns: long(times + 8)?, correlation: number(correlation)? })
}

/// Name of a kind of copy, as Nsight Systems has it.
pub const fn copy_name(kind: u8) -> &'static str {
    match kind {
        1 => "copy Host-to-Device",
        2 => "copy Device-to-Host",
        8 => "copy Device-to-Device",
        9 => "copy Host-to-Host",
        10 => "copy Peer-to-Peer",
        _ => "copy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record in which every aligned 32-bit word is its own offset.
    fn record(bytes: usize) -> Vec<u8> {
        (0..bytes as u32 / 4).flat_map(|word| (word * 4).to_ne_bytes()).collect()
    }

    fn long(at: u64) -> u64 {
        at | (at + 4) << 32
    }

    #[test]
    fn fields_stand_at_the_offsets_of_cuptis_headers() {
        let read = |kind| read(kind, &record(bytes_of(kind).expect("known"))).expect("long enough");
        let kernel = read(CONCURRENT_KERNEL);
        assert_eq!(kernel.traced, Traced::Kernel { place: [40, 44, 48], name: long(104) as usize });
        assert_eq!((kernel.start_ns, kernel.end_ns, kernel.correlation), (long(16), long(24), 92));
        let copy = read(MEMCPY);
        assert_eq!(copy.traced, Traced::Copy { place: [32, 36, 40], bytes: long(8), kind: 4 });
        assert_eq!((copy.start_ns, copy.end_ns, copy.correlation), (long(16), long(24), 44));
        assert_eq!(read(MEMSET).traced, Traced::Fill { place: [32, 36, 40], bytes: long(8) });
        let call = read(DRIVER);
        assert_eq!(call.traced, Traced::Call { is_driver: true, function: 4, process: 24, thread: 28 });
        assert_eq!((call.start_ns, call.end_ns, call.correlation), (long(8), long(16), 32));
    }

    #[test]
    fn what_is_too_short_or_unknown_is_not_read() {
        for kind in KINDS {
            let bytes = bytes_of(kind).expect("known");
            assert_eq!(read(kind, &record(bytes - 4)), None, "kind {kind}");
        }
        assert_eq!((read(3, &record(200)), bytes_of(3)), (None, None));
    }

    #[test]
    fn versions_whose_layout_is_not_known_are_told_apart() {
        assert!([19, 26, 28, 130_000, 130_001].into_iter().all(is_known));
        assert!(![0, 18, 29, 129_999, 130_500, 140_000].into_iter().any(is_known));
    }
}
