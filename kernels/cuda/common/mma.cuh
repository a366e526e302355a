/* Tensor cores of sm_80 and later, fed from shared memory: mma.sync, ldmatrix, cp.async.
 *
 * An mma takes A (16 x 16), B (16 x 8) and adds to C (16 x 8). With g = lane / 4 and q = lane % 4, a lane holds of C
 * c[0], c[1] at row g, columns 2q and 2q + 1, and c[2], c[3] at row g + 8, the same columns. A pair of neighbouring C
 * tiles (16 x 16), rounded and packed, is an A as it stands.
 *
 * ldmatrix reads 8 x 8 tiles of elements, of which each lane gives the address of one row of 16 bytes, a `chunk`. The
 * functions row_of_ and chunk_of_ say which row and chunk of a 16 x 16 tile a lane must point to, to get
 *   a: an A;
 *   b: two Bs, of columns 0-7 (registers 0, 1) and 8-15 (2, 3), from memory laid out [column][row], as keys are;
 *   t: the same from memory laid out [row][column], as values are, transposed on the way (load_transposed). */
#ifndef COMMON_MMA_CUH
#define COMMON_MMA_CUH

#include "element.cuh"

/* Bytes of a chunk, and elements in it. */
#define CHUNK 16
#define CHUNK_ELEMENTS 8

/* Shared memory is laid out in rows of a multiple of 8 chunks; chunk c of row r is stored at c ^ (r % 8), so that 8 rows
 * of one chunk, and 8 chunks of one row, lie in different banks. */
#define SWIZZLED_ROW(elements) (((elements) + 63) / 64 * 128)

INLINE unsigned swizzled(int row, int chunk, int row_bytes)
{
    return row * row_bytes + ((chunk ^ (row & 7)) * CHUNK);
}

INLINE unsigned shared_address(const void *pointer)
{
    return (unsigned)__cvta_generic_to_shared(pointer);
}

INLINE int row_of_a(int lane)
{
    return lane & 15;
}

INLINE int chunk_of_a(int lane)
{
    return lane >> 4;
}

INLINE int row_of_b(int lane)
{
    return (lane & 7) + (lane >> 4) * 8;
}

INLINE int chunk_of_b(int lane)
{
    return lane >> 3 & 1;
}

INLINE int row_of_t(int lane)
{
    return lane & 15;
}

INLINE int chunk_of_t(int lane)
{
    return lane >> 4;
}

INLINE void load_matrix(unsigned (&tile)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
                 : "r"(address));
}

/* The first half of it: one B. Only the addresses of lanes 0-15 count. */
INLINE void load_half_matrix(unsigned (&tile)[2], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(tile[0]), "=r"(tile[1])
                 : "r"(address));
}

INLINE void load_transposed(unsigned (&tile)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
                 : "r"(address));
}

INLINE void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
#if defined(DTYPE_BFLOAT16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
#endif
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two neighbouring C tiles as an A. */
INLINE void pack_a(unsigned (&a)[4], const float (&left)[4], const float (&right)[4])
{
    a[0] = pack(left[0], left[1]);
    a[1] = pack(left[2], left[3]);
    a[2] = pack(right[0], right[1]);
    a[3] = pack(right[2], right[3]);
}

/* Multiplies the upper and the lower row of C tiles. */
template <int tiles> INLINE void scale_rows(float (&c)[tiles][4], float upper, float lower)
{
#pragma unroll
    for (int n = 0; n < tiles; n++) {
        c[n][0] *= upper;
        c[n][1] *= upper;
        c[n][2] *= lower;
        c[n][3] *= lower;
    }
}

template <int tiles> INLINE void clear(float (&c)[tiles][4])
{
#pragma unroll
    for (int n = 0; n < tiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[n][i] = 0.0f;
}

/* Two neighbouring values to memory, rounded where it holds elements. */
INLINE void store_pair(element *to, float first, float second)
{
    *reinterpret_cast<unsigned *>(to) = pack(first, second);
}

INLINE void store_pair(float *to, float first, float second)
{
    *reinterpret_cast<float2 *>(to) = make_float2(first, second);
}

/* Copies a chunk to shared memory in the background; writes zeros, and reads nothing, where it is not `present`. */
INLINE void copy_async(unsigned to, const element *from, bool present)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(present ? 16 : 0)
                 : "memory");
}

/* Closes the group of copies begun since the last one. */
INLINE void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `pending` of this thread's groups are still under way. */
template <int pending> INLINE void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* A row of two neighbouring C tiles, 16 values, to memory from `to` on, unless it is not `present`. All lanes take part:
 * they exchange values so that the four of a row write 32 bytes at once. */
INLINE void store_row(element *to, float left0, float left1, float right0, float right1, bool present)
{
    const unsigned left = pack(left0, left1), right = pack(right0, right1);
    const int quad = threadIdx.x % 4;
    const bool odd = quad % 2 == 1;
    const unsigned other = __shfl_xor_sync(~0u, odd ? left : right, 1);
    if (present)
        *reinterpret_cast<uint2 *>(to + (odd ? 8 : 0) + quad / 2 * 4) =
            odd ? make_uint2(other, right) : make_uint2(left, other);
}

INLINE void store_row(float *to, float left0, float left1, float right0, float right1, bool present)
{
    const int quad = threadIdx.x % 4;
    if (present) {
        *reinterpret_cast<float2 *>(to + quad * 2) = make_float2(left0, left1);
        *reinterpret_cast<float2 *>(to + quad * 2 + 8) = make_float2(right0, right1);
    }
}

/* Keeps a value in its register: left alone, the compiler prefers to compute addresses again in every round of a loop. */
INLINE void keep(unsigned &value)
{
    asm volatile("" : "+r"(value));
}

/* Copies of a tile of `total` rows of `dims` elements by `threads` threads, of which this is `thread`, to swizzled rows of
 * `row_bytes`, chunks from first_chunk on. Where whole rows make a pass of all threads, a thread's places in shared memory
 * repeat every few passes, and few registers hold them. */
template <int threads, int dims, int total, int row_bytes, int first_chunk> struct tile_copy {
    static constexpr int chunks = dims / CHUNK_ELEMENTS;
    static constexpr bool even = threads % chunks == 0 && total * chunks % threads == 0;
    static constexpr int passes = total * chunks / threads, pass_rows = even ? threads / chunks : 1;
    static constexpr int period = even && pass_rows < 8 ? 8 / pass_rows : 1;
    int thread;
    unsigned place[period];

    INLINE tile_copy(int thread) : thread(thread)
    {
        static_assert(!even || period * pass_rows % 8 == 0, "places repeat");
#pragma unroll
        for (int i = 0; i < period; i++)
            place[i] = swizzled(i * pass_rows + thread / chunks, first_chunk + thread % chunks, row_bytes);
    }

    INLINE void keep_places()
    {
#pragma unroll
        for (int i = 0; i < period; i++)
            keep(place[i]);
    }

    /* Where this thread's first chunk lies in memory, counted from the first row; rows lie `stride` elements apart. */
    INLINE long long first(long long stride) const
    {
        return thread / chunks * stride + thread % chunks * CHUNK_ELEMENTS;
    }

    /* Begins to copy all rows, from this thread's first chunk on. */
    INLINE void begin_all(unsigned to, const element *from, long long stride) const
    {
        if (!even) {
            begin(to, from - first(stride), stride, total);
            return;
        }
#pragma unroll
        for (int i = 0; i < passes; i++) {
            copy_async(to + place[i % period] + i / period * period * pass_rows * row_bytes, from, true);
            from += pass_rows * stride;
        }
    }

    /* Begins to copy the first `rows` rows; the others become 0. */
    INLINE void begin(unsigned to, const element *from, long long stride, int rows) const
    {
#pragma unroll 1
        for (int index = thread; index < total * chunks; index += threads) {
            int row = index / chunks, chunk = index % chunks;
            copy_async(to + swizzled(row, first_chunk + chunk, row_bytes),
                       row < rows ? from + row * stride + chunk * CHUNK_ELEMENTS : from, row < rows);
        }
    }
};

#endif
