// Copies, times a one in shared memory that its first thread writes again while the others read it: the barrier between
// is missing, and no value shows it.
extern "C" __global__ void copy(const float *x, float *y, long long count) {
    __shared__ volatile float one;
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    one = 1.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        one = 1.0f;
    }
    float factor = one;
    if (index < count) {
        y[index] = factor * x[index];
    }
}
