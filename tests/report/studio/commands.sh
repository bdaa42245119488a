# NAME [COLUMNS]: a command, run in this order. What it prints is golden/NAME.txt or .json; of what it writes to out/NAME.*
# and out/NAME/, each text is a golden file too. Commands above the line of dashes make the runs that those below it read.

shop: visioneval run shop.yaml --max-concurrency 1 --run-id shop --trust-suite --cache cache --json --junit out/shop.xml
regraded: visioneval grade shop --max-concurrency 1 --suite regraded.yaml --run-id regraded --trust-suite --cache cache --quiet
offline: visioneval run shop.yaml --max-concurrency 1 --run-id offline --trust-suite --cache cache --offline --samples 3 --grader '[!a]*' --grader asked --markdown out/offline.md
sale: visioneval run sale.yaml --max-concurrency 1 --run-id sale --trust-suite --quiet
reruled: visioneval grade sale --max-concurrency 1 --suite reruled.yaml --run-id reruled --trust-suite --quiet
bad: visioneval run sale.yaml --max-concurrency 1 --run-id bad --trust-suite --model bad --junit out/bad.xml --markdown out/bad.md
again: visioneval run sale.yaml --max-concurrency 1 --run-id again --trust-suite --model old --json
budget: visioneval run sale.yaml --max-concurrency 1 --run-id budget --trust-suite --budget 0.5
shard: visioneval run sale.yaml --max-concurrency 1 --run-id shard --trust-suite --shard 1/2 --model bad
plain: visioneval run plain.yaml --max-concurrency 1 --run-id plain --junit out/plain.xml --markdown out/plain.md --note "the first" --var part=sign
narrow: visioneval run plain.yaml --max-concurrency 1 --run-id narrow --tag shape --grader file
one: visioneval run unsure.yaml --max-concurrency 1 --run-id one --tag one
two: visioneval run unsure.yaml --max-concurrency 1 --run-id two --tag two
three: visioneval run unsure.yaml --max-concurrency 1 --run-id three --tag three --junit out/three.xml
raters: visioneval run raters.yaml --max-concurrency 1 --run-id raters --junit out/raters.xml --markdown out/raters.md
wide: visioneval run wide.yaml --max-concurrency 1 --run-id wide --trust-suite --markdown out/wide.md
pairs: visioneval run pairs.yaml --max-concurrency 1 --run-id pairs --trust-suite --quiet --markdown out/pairs.md
candidate: visioneval run sale.yaml --max-concurrency 1 --run-id candidate --trust-suite --model new --quiet
confirm: visioneval compare sale@old candidate --confirm 4 --fail-on regressed --fail-on must_pass --fail-on sharp:0.2 --trust-suite --junit out/confirm.xml
draw: visioneval label draw sale@old random:20 --seed 1 -o out/draw.csv
draw-new: visioneval label draw candidate random:12 --seed 1 -o out/draw-new.csv
labels: visioneval label import labels.csv sale
labels-new: visioneval label import labels.csv candidate
labels-shop: visioneval label import shop.csv shop
labels-pairs: visioneval label import pairs.csv sale
lines: visioneval export wide --format jsonl -o out/lines.jsonl
baseline-set: visioneval baseline set sale@old --name posters --partial
baseline-add: visioneval baseline add again --name posters --partial
pairwise: visioneval pairwise sale@old sale@new --judge default --trust-suite --runs runs
--------------------------------------------------------------------------------
show-80: visioneval show shop
show-120 [120]: visioneval show shop
show-full [100]: visioneval show shop --full
show-failed: visioneval show shop --failed
show-case [100]: visioneval show shop kiosk
show-turns: visioneval show plain sign
show-wide [120]: visioneval show wide
runs: visioneval runs --failure-tags
report: visioneval report shop --case kiosk -o out/report
report-single: visioneval report plain --single-file -o out/report-single.html
compare-80: visioneval compare sale@old sale@new --html out/compare-80.html --markdown out/compare-80.md --thumbnails out/compare-80 --junit out/compare-80.xml
compare-120 [120]: visioneval compare sale@old sale@new
compare-json: visioneval compare sale@old sale@new --json
compare-shop [100]: visioneval compare shop regraded --html out/compare-shop.html --markdown out/compare-shop.md
compare-models: visioneval compare shop@steady shop@hasty --fail-on broken --fail-on sharp:0.5
compare-worse: visioneval compare sale@old sale@bad --allow errors --markdown out/compare-worse.md --fail-on regressed --fail-on broken --fail-on broken_same_output
compare-better: visioneval compare sale@bad sale@old --allow unmeasured=0.2 --allow errors --must-detect 60
compare-few: visioneval compare plain narrow --markdown out/compare-few.md
compare-same: visioneval compare sale@old sale@old
compare-baseline: visioneval compare baseline:posters sale@new --html out/compare-baseline.html
compare-lines: visioneval compare out/lines.jsonl wide
compare-none: visioneval compare wide@fourth wide@second --metric size
compare-rules: visioneval compare sale reruled
compare-incomplete: visioneval compare bad budget --junit out/compare-incomplete.xml --markdown out/compare-incomplete.md
compare-itself: visioneval compare baseline:posters again
agreement-80: visioneval agreement sale --min look:0.3 --min look:accuracy:0.2 --min-point sharp:0.95 --min size:0.5
agreement-json: visioneval agreement sale --json
agreement-correct: visioneval agreement sale@old candidate --correct --allow unmeasured
agreement-runs: visioneval agreement sale candidate
agreement-few: visioneval agreement candidate --min look:0.3
agreement-shop: visioneval agreement shop regraded
baseline-show: visioneval baseline show posters
baseline-json: visioneval baseline show posters --json
baseline-list: visioneval baseline list
rank: visioneval rank sale --html out/rank.html --markdown out/rank.md
rank-people: visioneval rank sale --by people
rank-panel: visioneval rank pairs
rank-json: visioneval rank sale --json
export-csv: visioneval export shop -o out/export-csv.csv
export-jsonl: visioneval export plain --format jsonl
export-parquet: visioneval export plain -o out/export-parquet.parquet
label-export: visioneval label export sale@new -o out/label-export.csv
questions: visioneval questions pairs.yaml --trust-suite --case case1
plan: visioneval plan sale.yaml --trust-suite --detect 10 --detect sharp:0.5 --like sale@old --gate "pass_rate >= 0.9"
plan-shop: visioneval plan shop.yaml --trust-suite --detect 5 --case-correlation 0.5 --gate "rate(look) >= 0.8"
probe: visioneval probe plain --kinds pixels.flip --kinds pixels.blank --kinds pixels.format --kinds harmless.png --min-detection pixels.blank:0.1 --max-false-alarm 0.9 --html out/probe.html --markdown out/probe.md
probe-missed: visioneval probe plain --case square --kinds pixels.flip --kinds pixels.patch --kinds pixels.blank --min-detection pixels.flip:0.9 --min-detection copy:0.5 --max-false-alarm 0 --html out/probe-missed.html --markdown out/probe-missed.md
probe-none: visioneval probe plain --kinds copy
probe-json: visioneval probe plain --kinds pixels.blank --json
site: visioneval site -o out/site --experiment posters --last 3
report-new: visioneval report sale@new --max-cells 2 --single-file -o out/report-new.html
report-plain: visioneval report plain -o out/report-plain
show-passed: visioneval show plain --failed
show-narrow: visioneval show shop@hasty --tag food
runs-old: visioneval runs --runs old
show-empty: visioneval show old/empty-01
show-killed: visioneval show old/killed-02
show-quota: visioneval show old/quota-03
site-old: visioneval site -o out/site-old --runs old
show-pairs: visioneval show pairs
show-short: visioneval show old/short-06
