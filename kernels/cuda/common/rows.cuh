/* Where the rows of one head lie in a tensor [b,h,s,…]: for products with a matrix of that head, such as w_uv. */
#ifndef COMMON_ROWS_CUH
#define COMMON_ROWS_CUH

#include "element.cuh"

/* Row `row` (0 to b * s - 1, request and query) of head `head`. */
INLINE int row_in_tensor(int row, int s, int h, int head)
{
    return (row / s * h + head) * s + row % s;
}

#endif
