#!/bin/sh
# Stands in for Nsight Systems: what it leaves is $root/nsys.sqlite, what goes wrong says $root/nsys.mode.
root=$(dirname "$0")
mode=$(cat "$root/nsys.mode" 2>/dev/null)
case $1 in
--version)
    echo "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0"
    exit ;;
export)
    while [ "$1" != -o ]; do shift; done
    [ "$mode" = unexported ] && echo "the file is damaged" >&2 && exit 1
    [ "$mode" = stale ] && cp "$root/nsys.sqlite" "$2" && touch -d 2001-01-01 "$2" && exit
    cp "$root/nsys.sqlite" "$2"
    exit ;;
profile) ;;
*) exit 1 ;;
esac
while [ "$1" != -o ]; do shift; done
out=$2
shift 2
[ "$1" = true ] || { echo "$out" >> "$root/nsys.starts"; env > "$root/nsys.environment"; }
echo "Capture range started in the application."
"$@" </dev/null 3>&- 4>&-
code=$?
echo "Capture range ended in the application."
echo "Generating '/tmp/nsys-report-a617.qdstrm'"
if [ "$mode" = unimported ] || { [ "$mode" = unimported_later ] && [ -s "$root/nsys.starts" ]; }; then
    echo "Importer error status: An unknown error occurred."
    > "$out.qdstrm"
    printf 'Generated:\n\t%s\n' "$out.qdstrm"
elif [ "$mode" != nothing ]; then
    printf '[1/1] [========================100%%] pipe.nsys-rep'
    echo report > "$out.nsys-rep"
    printf '\nGenerated:\n\t%s\n' "$out.nsys-rep"
fi
exit $code
