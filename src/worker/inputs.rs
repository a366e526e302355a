//! Inputs from a counter: the element `index` of a tensor depends on seed and index alone, by integer arithmetic and
//! one float32 multiplication, so that every device and every number of threads makes the same bits.
//!
//! The generator hashes a 64-bit counter with the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
//! *Normal*: the four 16-bit parts of the hash are summed and centred exactly, an even or odd integer within ±262140
//! (twice the centred sum); its variance is 4·(2³² − 1)/3. One float32 multiplication scales it. *Uniform*: the upper
//! 24 bits give an odd integer within ±2²⁴; one float32 multiplication by the half-width and one addition of the
//! middle, each rounded to nearest. The last step rounds to the tensor's type, ties to even.

use rayon::prelude::*;

use super::element::{Element, ElementsMut};
use crate::model::pipeline::Distribution;

/// Elements that one thread makes at a time.
const CHUNK: usize = 1 << 16;
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Fills a tensor. Runs on the current rayon pool.
pub fn fill(elements: ElementsMut<'_>, distribution: &Distribution) {
    match elements {
        ElementsMut::Float32(slice) => fill_slice(slice, distribution),
        ElementsMut::Bfloat16(slice) => fill_slice(slice, distribution),
        ElementsMut::Float16(slice) => fill_slice(slice, distribution),
    }
}

/// A distribution as the generator's inner loop needs it, on whatever device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Generator {
    /// Centred sum times `scale`.
    Normal { stream: u64, scale: f32 },
    /// Centred odd integer times `half_width`, plus `middle`.
    Uniform { stream: u64, half_width: f32, middle: f32 },
}

impl Generator {
    /// The generator of a distribution.
    pub fn new(distribution: &Distribution) -> Generator {
        match *distribution {
            Distribution::Normal { std, seed } => {
                let scale = (std / (4.0 * 4_294_967_295.0 / 3.0_f64).sqrt()) as f32;
                Generator::Normal { stream: finalise(seed), scale }
            }
            Distribution::Uniform { low, high, seed } => {
                let half_width = ((high - low) / 2.0 / 16_777_216.0) as f32;
                let middle = (low + (high - low) / 2.0) as f32;
                Generator::Uniform { stream: finalise(seed), half_width, middle }
            }
        }
    }
}

fn fill_slice<T: Element>(slice: &mut [T], distribution: &Distribution) {
    match Generator::new(distribution) {
        Generator::Normal { stream, scale } => {
            fill_with(slice, stream, |hash| centred_sum(hash) as f32 * scale);
        }
        Generator::Uniform { stream, half_width, middle } => {
            fill_with(slice, stream, |hash| centred_odd(hash) as f32 * half_width + middle);
        }
    }
}

fn fill_with<T: Element>(slice: &mut [T], stream: u64, value: impl Fn(u64) -> f32 + Sync) {
    slice.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, elements)| {
        let first = (chunk * CHUNK) as u64;
        for (element, index) in elements.iter_mut().zip(first..) {
            *element = T::from_f32(value(hash(stream, index)));
        }
    });
}

/// Hash of the counter `index` in the stream of a seed.
fn hash(stream: u64, index: u64) -> u64 {
    finalise(stream.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA)))
}

/// A number that depends on `seed` and `index` alone.
pub fn counter(seed: u64, index: u64) -> u64 {
    hash(finalise(seed), index)
}

const fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn centred_sum(hash: u64) -> i32 {
    let part = |shift: u32| (hash >> shift) as i32 & 0xFFFF;
    2 * (part(0) + part(16) + part(32) + part(48)) - 4 * 0xFFFF
}

fn centred_odd(hash: u64) -> i32 {
    2 * (hash >> 40) as i32 + 1 - (1 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use proptest::prelude::*;

    const NORMAL: Distribution = Distribution::Normal { std: 1.0, seed: 1 };

    fn normal(count: usize) -> Vec<f32> {
        let mut values = vec![0.0; count];
        fill(ElementsMut::Float32(&mut values), &NORMAL);
        values
    }

    #[test]
    fn the_finaliser_is_that_of_splitmix64() {
        // First outputs of SplitMix64 from state 0, as published with the generator.
        assert_eq!(hash(0, 0), 0xE220_A839_7B1D_CDAF);
        assert_eq!(hash(0, 1), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(hash(0, 2), 0x06C4_5D18_8009_454F);
    }

    #[test]
    fn bits_are_those_that_every_device_makes() {
        // From an implementation of the description above in another language.
        let mut uniform = vec![0.0; 4];
        fill(ElementsMut::Float32(&mut uniform), &Distribution::Uniform { low: -1.0, high: 3.0, seed: 9 });
        let bits = |values: &[f32]| {
            values.iter().map(|value| format!("{:08x}", value.to_bits())).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(bits(&normal(4)), "3fd476b9 bef461ad 3f63e2ef 3fd1f500");
        assert_eq!(bits(&uniform), "be347718 3f79125e 4032d0fc 3fa4668f");
    }

    #[test]
    fn values_depend_on_the_index_alone() {
        let long = normal(3 * CHUNK + 5);
        assert_eq!(long[..100], normal(100)[..]);
        let mut rounded = vec![bf16::ZERO; 100];
        fill(ElementsMut::Bfloat16(&mut rounded), &NORMAL);
        assert!(rounded.iter().zip(&long).all(|(a, b)| *a == bf16::from_f32(*b)));
        let mut other = vec![0.0; 100];
        fill(ElementsMut::Float32(&mut other), &Distribution::Normal { std: 1.0, seed: 2 });
        assert_ne!(other[..], long[..100]);
    }

    #[test]
    fn moments_are_those_of_the_distribution() {
        let moments = |values: &[f32]| {
            let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64;
            let variance = values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / values.len() as f64;
            (mean, variance)
        };
        let (mean, variance) = moments(&normal(1 << 18));
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.01, "{mean} {variance}");
        let mut values = vec![0.0; 1 << 18];
        fill(ElementsMut::Float32(&mut values), &Distribution::Uniform { low: -1.0, high: 3.0, seed: 9 });
        let (mean, variance) = moments(&values);
        assert!((mean - 1.0).abs() < 0.01 && (variance - 16.0 / 12.0).abs() < 0.02, "{mean} {variance}");
        assert!(values.iter().all(|v| (-1.0..=3.0).contains(v)));
    }

    proptest! {
        #[test]
        fn integers_are_exact_in_float32(hash: u64) {
            let (sum, odd) = (centred_sum(hash), centred_odd(hash));
            prop_assert!(sum.abs() <= 262_140 && f64::from(sum as f32) == f64::from(sum));
            prop_assert!(odd.abs() < 1 << 24 && f64::from(odd as f32) == f64::from(odd));
        }
    }
}
