/* One element of a tensor of the kernel's dtype: its type and its conversion from and to float, alone and in pairs.
 *
 * All arithmetic is done in float or on tensor cores with float accumulators. A pair lies in one 32-bit register, the
 * first element in its lower half, as tensor cores and memory have it. */
#ifndef COMMON_ELEMENT_CUH
#define COMMON_ELEMENT_CUH

#define INLINE __device__ __forceinline__

#if defined(DTYPE_FLOAT32)

typedef float element;

INLINE float to_float(element value)
{
    return value;
}

INLINE element from_float(float value)
{
    return value;
}

#elif defined(DTYPE_BFLOAT16)

#include <cuda_bf16.h>

typedef __nv_bfloat16 element;

INLINE float to_float(element value)
{
    return __bfloat162float(value);
}

INLINE element from_float(float value)
{
    return __float2bfloat16(value);
}

INLINE unsigned pack(float first, float second)
{
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

INLINE float2 unpack(unsigned pair)
{
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

#elif defined(DTYPE_FLOAT16)

#include <cuda_fp16.h>

typedef __half element;

INLINE float to_float(element value)
{
    return __half2float(value);
}

INLINE element from_float(float value)
{
    return __float2half(value);
}

INLINE unsigned pack(float first, float second)
{
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

INLINE float2 unpack(unsigned pair)
{
    float2 values;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
        : "=f"(values.x), "=f"(values.y)
        : "r"(pair));
    return values;
}

#else
#error "define DTYPE_FLOAT32, DTYPE_BFLOAT16 or DTYPE_FLOAT16"
#endif

#endif
