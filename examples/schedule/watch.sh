#!/usr/bin/env bash
# Take new tables from a folder into a store, update its model, predict a map and publish it.
#
#   watch.sh FOLDER [OPTIONS OF daskgp predict, such as --resolution x=1,y=1]
#
# FOLDER has rows.zarr, model.zarr and inbox/, where other programs put csv files.  A file is taken
# once: it waits in taking/ until its rows are in the store, and ends in done/, or in refused/ if
# daskgp refuses it.  Maps are maps/ROWS.zarr, by the rows that the model has seen, and latest.zarr
# is a link to the newest complete one.  Without options no map is made.
#
# Exit codes are those of daskgp: 0 done, or nothing to do; 1 failed, or another run is at work:
# run it again; 2 somebody has to look.  heartbeat.json has the last run that ended.
#
# SETTLE=60  seconds for which a file of the inbox must not have changed
# KEEP=3     maps that are kept, the newest in any case
set -euo pipefail

folder=${1:?"name the folder: watch.sh FOLDER [OPTIONS OF daskgp predict]"}
shift
cd "$folder"
mkdir -p inbox taking done refused maps

exec 9> job.lock # released when this process and its children have ended, however they end
if ! flock --nonblock 9; then
    echo "Error: another run is at work in $folder: this one ends" >&2
    exit 1
fi

code=0 total=null
heartbeat() {
    local status=$?
    [ $status -ne 0 ] || status=$code
    if { printf '{"finished": "%s", "exit": %d, "rows": %s}\n' "$(date --utc +%FT%TZ)" $status $total \
        > heartbeat.part && mv heartbeat.part heartbeat.json; } 2> /dev/null; then
        exit $status
    fi
    [ $status -ne 0 ] || echo "Error: heartbeat.json cannot be written in $folder" >&2
    exit $((status > 0 ? status : 1))
}
trap heartbeat EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

number() { grep --only-matching "\"$1\": [0-9]*" | head -n 1 | grep --only-matching '[0-9]*$'; }

# Append one file of taking/.  What a killed run left there was appended if the store has more rows.
append() {
    local name=$1 state rows
    state=$(daskgp info rows.zarr --json) || exit # no fault of the file, which stays in taking/
    rows=$(number rows <<< "$state") || exit
    if [[ $state == *'"complete": true'* ]]; then
        if [ -s "taking/$name.rows" ] && [ "$rows" -gt "$(< "taking/$name.rows")" ]; then
            return 0
        fi
        echo "$rows" > "taking/$name.part" && mv "taking/$name.part" "taking/$name.rows" || return
    fi
    daskgp --quiet convert "taking/$name" rows.zarr --append
}

take() {
    local name=$1 status=0
    append "$name" || status=$?
    case $status in
        0) mv "taking/$name" "done/$name" ;;
        2) mv "taking/$name" "refused/$name" && code=2 ;;
        *) exit $status ;; # it stays in taking/, for the next run
    esac
    rm -f "taking/$name.rows"
}

for path in taking/*.csv; do
    [ -e "$path" ] && take "${path##*/}"
done
mapfile -d '' settled < <(find inbox -maxdepth 1 -name '*.csv' \
    -not -newermt "-${SETTLE:-60} seconds" -print0 | sort --zero-terminated)
wait $! # a find that failed ends the run
for path in "${settled[@]}"; do
    name=${path##*/}
    if [ -n "$(tail -c 1 "$path")" ] || [ ! -s "$path" ]; then
        echo "Error: $folder/$path ends within a line: it is left until it is whole" >&2
        code=2
    elif [ -e "done/$name" ]; then
        echo "Error: $folder/$path was taken before: give it another name, or remove it" >&2
        code=2
    else
        rm -f "taking/$name.rows" # of an earlier file of this name
        mv "$path" "taking/$name"
        take "$name"
    fi
done

updated=$(daskgp --quiet update model.zarr rows.zarr --clear-lock)
total=$(number total <<< "$updated")
if [ $# -gt 0 ]; then
    map=maps/$total.zarr
    daskgp --quiet predict model.zarr "$map" "$@" --resume --clear-lock
    ln --symbolic --no-dereference --force "$map" latest.part
    mv --no-target-directory latest.part latest.zarr # readers see the old map or the new one
    touch "$map" # a model that forgot rows has fewer of them in its newest map
    for old in $(ls -dt maps/*.zarr | tail -n +$((${KEEP:-3} + 1))); do
        [ "$old" = "$map" ] || rm -rf "$old" "$old".*
    done
fi
exit $code
