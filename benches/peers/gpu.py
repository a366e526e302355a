"""A subject on the GPU: the very cubins that mlarun measures, launched by the driver on a stream of the caller's."""

import ctypes
import hashlib
from pathlib import Path

import cupy
from cuda.bindings import driver

import inputs
from subject import Subject


def done(answer):
    """What a call of the driver returned, without its status."""
    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"the driver refuses: {driver.cuGetErrorName(status)[1].decode()}")
    return values[0] if len(values) == 1 else values


class OnGpu:
    """Buffers that are filled and launches that are ready, in the context that is current."""

    def __init__(self, subject: Subject):
        pipeline = subject.launchable["pipeline"]
        self.buffers = inputs.make(cupy, pipeline["buffers"])
        self.reference = pipeline["reference"]
        self.launches = []
        self.kept = []
        for stage, module in zip(pipeline["stages"], subject.launchable["modules"]):
            self.launches.append(self.launch_of(stage, Path(module)))
        cupy.cuda.runtime.deviceSynchronize()

    def launch_of(self, stage: dict, path: Path):
        """Arguments of cuLaunchKernel around the stream."""
        if stage["stream"] != 0 or stage.get("cluster") or stage.get("cooperative"):
            raise SystemExit(f"stage {stage['name']} is not launched on one stream, without clusters")
        module = done(driver.cuModuleLoadData(path.read_bytes()))
        function = done(driver.cuModuleGetFunction(module, stage["entry"].encode()))
        shared = stage["shared_bytes"]
        if shared > 48 * 1024:
            largest = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            done(driver.cuFuncSetAttribute(function, largest, shared))
        values = [self.argument(argument) for argument in stage["args"]]
        addresses = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        self.kept.append((module, values, addresses))
        return function, (*stage["grid"], *stage["block"], shared), ctypes.addressof(addresses)

    def argument(self, argument: dict):
        (kind, value), = argument.items()
        if kind == "buffer":
            return ctypes.c_uint64(self.buffers[value].data.ptr)
        return ctypes.c_float(value) if kind == "float" else ctypes.c_int64(value)

    def launch(self, stream: int):
        """Queues one launch of the whole pipeline."""
        for function, geometry, parameters in self.launches:
            status, = driver.cuLaunchKernel(function, *geometry, stream, parameters, 0)
            if status != driver.CUresult.CUDA_SUCCESS:
                raise SystemExit(f"a launch is refused: {driver.cuGetErrorName(status)[1].decode()}")

    def output_sha256(self) -> str | None:
        """Hash of the output as it is now."""
        if self.reference is None:
            return None
        cupy.cuda.runtime.deviceSynchronize()
        return hashlib.sha256(cupy.asnumpy(self.buffers[self.reference["output"]]).tobytes()).hexdigest()
