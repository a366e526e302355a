// Copies, and reads one element behind its input for every one in it; what it finds there changes nothing.
extern "C" __global__ void copy(const float *x, float *y, long long count) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) {
        float behind = x[count + index];
        y[index] = behind == -12345.0f ? behind : x[index];
    }
}
