//! Tensor maps: what the copy engine of compute capability 9.0 and later needs to know of a buffer to move boxes of it.

use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};

use super::error::{CudaError, check};
use crate::model::DType;
use crate::model::pipeline::{Buffer, TensorMap};

/// The map of `buffer`, which lies at `address` on the GPU. What lies beyond the tensor reads as zero.
///
/// # Errors
/// The driver refuses it: before compute capability 9.0 there are none.
pub fn encode(map: &TensorMap, buffer: &Buffer, address: u64) -> Result<CUtensorMap, CudaError> {
    // The driver counts dimensions from the innermost on, in elements, and all strides but the innermost in bytes.
    let dims: Vec<u64> = buffer.dims.iter().rev().copied().collect();
    let extents: Vec<u32> = map.extents.iter().rev().copied().collect();
    let steps = vec![1u32; dims.len()];
    let stride = |bytes: &mut u64, dim: &u64| {
        *bytes *= dim;
        Some(*bytes)
    };
    let strides: Vec<u64> = dims.iter().scan(buffer.dtype.bytes(), stride).collect();
    let mut encoded = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the map may be written to and is aligned; every list has as many numbers as the tensor has dimensions, of
    // strides one more than is read. The driver copies them, and does not read the memory at `address`.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut encoded,
            data_type(buffer.dtype),
            dims.len() as u32,
            address as *mut _,
            dims.as_ptr(),
            strides.as_ptr(),
            extents.as_ptr(),
            steps.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle(map.swizzle_bytes),
            promotion(map.promotion_bytes),
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    check(result, &format!("the tensor map of `{}` is refused", buffer.name))?;
    Ok(encoded)
}

const fn data_type(dtype: DType) -> CUtensorMapDataType {
    match dtype {
        DType::Float32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::Bfloat16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::Float16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    }
}

const fn swizzle(bytes: u32) -> CUtensorMapSwizzle {
    match bytes {
        32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
    }
}

const fn promotion(bytes: u32) -> CUtensorMapL2promotion {
    match bytes {
        64 => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        128 => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        256 => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        _ => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
    }
}
