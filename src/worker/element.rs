//! Elements of tensors as numbers: exact to float64, rounded to nearest even from it. Knows nothing of buffers.

use half::{bf16, f16};

/// A type that a tensor holds in memory.
pub trait Element: Copy + Send + Sync + 'static {
    /// Nearest element, ties to even.
    fn from_f32(value: f32) -> Self;
    /// Nearest element, ties to even, with a single rounding.
    fn from_f64(value: f64) -> Self;
    /// The exact value.
    fn to_f64(self) -> f64;
}

impl Element for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Element for bf16 {
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
    fn from_f64(value: f64) -> Self {
        bf16::from_f32(to_odd(value))
    }
    fn to_f64(self) -> f64 {
        f64::from(f32::from_bits(u32::from(self.to_bits()) << 16))
    }
}

impl Element for f16 {
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }
    fn from_f64(value: f64) -> Self {
        f16::from_f32(to_odd(value))
    }
    fn to_f64(self) -> f64 {
        f64::from(f32::from(self))
    }
}

/// `value` rounded to float32 towards the neighbour with an odd last bit when it is not exact. A second rounding to a
/// format with at least two bits fewer then gives what a single rounding of `value` would (Boldo and Melquiond, 2008).
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if value.is_nan() || f64::from(nearest) == value {
        return nearest;
    }
    let towards_zero = if f64::from(nearest).abs() > value.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(towards_zero | 1)
}

/// The elements of one tensor.
#[derive(Clone, Copy)]
pub enum Elements<'a> {
    Float32(&'a [f32]),
    Bfloat16(&'a [bf16]),
    Float16(&'a [f16]),
}

/// The elements of one tensor, to be written.
pub enum ElementsMut<'a> {
    Float32(&'a mut [f32]),
    Bfloat16(&'a mut [bf16]),
    Float16(&'a mut [f16]),
}

impl Elements<'_> {
    /// Value of the element `index`.
    ///
    /// # Panics
    /// When `index` is out of range.
    pub fn get(self, index: usize) -> f64 {
        match self {
            Elements::Float32(slice) => slice[index].to_f64(),
            Elements::Bfloat16(slice) => slice[index].to_f64(),
            Elements::Float16(slice) => slice[index].to_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounding_from_float64_is_single_and_to_even() {
        let tie = 1.0 + 2f64.powi(-8);
        assert_eq!(<bf16 as Element>::from_f64(tie).to_bits(), 0x3F80);
        assert_eq!(<bf16 as Element>::from_f64(tie + 2f64.powi(-50)).to_bits(), 0x3F81);
        assert_eq!(<bf16 as Element>::from_f64(-tie - 2f64.powi(-50)).to_bits(), 0xBF81);
        assert_eq!(<f16 as Element>::from_f64(1.0 + 2f64.powi(-11)).to_bits(), 0x3C00);
        assert_eq!(<f16 as Element>::from_f64(1.0 + 2f64.powi(-11) + 2f64.powi(-45)).to_bits(), 0x3C01);
        assert!(<bf16 as Element>::from_f64(f64::NAN).is_nan());
        assert_eq!(<bf16 as Element>::from_f64(1e300), bf16::INFINITY);
        assert_eq!(<bf16 as Element>::from_f64(0.0).to_bits(), 0);
    }

    proptest! {
        #[test]
        fn no_neighbour_is_nearer(value in -1e4f64..1e4) {
            let rounded = <bf16 as Element>::from_f64(value);
            let error = (rounded.to_f64() - value).abs();
            for bits in [rounded.to_bits().wrapping_add(1), rounded.to_bits().wrapping_sub(1)] {
                let neighbour = bf16::from_bits(bits);
                prop_assert!(neighbour.is_nan() || (neighbour.to_f64() - value).abs() >= error);
            }
        }
    }
}
