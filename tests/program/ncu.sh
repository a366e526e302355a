#!/bin/sh
# Nsight Compute as far as mlarun calls it, without a GPU. `ncu.mode` beside this file says what goes wrong.
here=$(dirname "$0")
mode=$(cat "$here/ncu.mode" 2>/dev/null)
if [ "$1" = --version ]; then
    echo 'NVIDIA (R) Nsight Compute Command Line Profiler'
    echo 'Version 2025.3.1.0 (build 36398880) (public-release)'
    exit
fi
if [ "$1" = --query-metrics ]; then
    if [ "$3" = launch ]; then
        printf '%s\n' launch__occupancy_limit_registers launch__occupancy_limit_shared_mem launch__occupancy_limit_warps \
            launch__occupancy_limit_blocks launch__occupancy_limit_barriers launch__waves_per_multiprocessor \
            launch__registers_per_thread launch__shared_mem_per_block
    else
        # It does not know the hit rate of L1.
        printf '%s  Counter  of something\n' gpu__time_duration sm__pipe_tensor_cycles_active gpu__dram_throughput \
            dram__bytes sm__warps_active lts__t_sector_hit_rate \
            l1tex__t_bytes_pipe_lsu_mem_local_op_ld l1tex__t_bytes_pipe_lsu_mem_local_op_st sm__throughput \
            gpu__compute_memory_throughput gpc__cycles_elapsed
    fi
    exit
fi
# Unit and value of $metric.
measure() {
    case $metric in
    gpu__time_duration.sum) unit=ns value=2000 ;;
    *bytes_pipe*) unit=byte value=0 ;;
    *bytes*) unit=byte value=1024 ;;
    *pct* | *_pct) unit=% value=42.5 ;;
    *per_second) unit=hz value=1500000000 ;;
    *occupancy_limit*) unit=block value=8 ;;
    *registers*) unit=register/thread value=32 ;;
    *shared*) unit=byte/block value=1024 ;;
    *) unit='' value=0.5 ;;
    esac
}
row() { printf '"%s","7","copy","%s","%s","%s","%s","","","","",""\n' "$@"; }
header='"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"'
if [ "$1" = --import ]; then
    case "$*" in
    *'--page raw'*)
        names='"ID","Process ID","Kernel Name","profiler__replayer_passes"' units='"","","",""' values='"0","7","copy","38"'
        for metric in $(tr , ' ' <"$here/ncu.metrics"); do
            measure
            names="$names,\"$metric\"" units="$units,\"$unit\"" values="$values,\"$value\""
        done
        printf '%s\n' "$names" "$units" "$values"
        ;;
    *'--page details'*)
        echo "$header"
        row 0 'GPU Speed Of Light Throughput' Duration ns 2000
        ;;
    *cuda,sass*) ;;
    *sass*)
        echo '"Kernel Name","copy",'
        echo '"Address","Source","# Samples","stall_wait"'
        echo '"0x10","EXIT","3","3"'
        ;;
    esac
    exit
fi
log= metrics= report=
while :; do
    case "$1" in
    --log-file) log=$2 && shift 2 ;;
    --metrics) metrics=$2 && shift 2 ;;
    --export) report=$2 && shift 2 ;;
    --csv | --force-overwrite) shift ;;
    --*) shift 2 ;;
    *) break ;;
    esac
done
echo started >>"$here/ncu.starts"
cat >"$here/ncu.request"
echo "$metrics" >"$here/ncu.metrics"
launches=$(grep -o '"entry":"copy"' "$here/ncu.request" | wc -l)
case $mode in
permission)
    echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters' >"$log"
    exit 1
    ;;
alone) [ "$launches" = 1 ] || exit 9 ;;
esac
"$@" <"$here/ncu.request" || exit
[ -n "$report" ] && [ "$mode" != unkept ] && echo report >"$report"
case $mode in
nothing) echo '==WARNING== No kernels were profiled.' >"$log" && exit ;;
memory) echo '==ERROR== Failed to profile "copy" in process 7
==ERROR== Out of memory: failed to save memory' >"$log" && exit ;;
esac
{
    echo '==PROF== Connected to process 7 (/bin/mlarun)'
    echo "$header"
    number=0
    while [ "$number" -lt "$launches" ]; do
        for metric in $(echo "$metrics" | tr , ' '); do
            measure
            [ "$mode" = undelivered ] && [ "$metric" = dram__bytes.sum ] && unit='' value=n/a
            row "$number" 'Command line profiler metrics' "$metric" "$unit" "$value"
        done
        number=$((number + 1))
    done
} >"$log"
