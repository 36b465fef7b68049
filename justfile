# Short names for ./mcpx-dev, which does the work and sets up what it needs.

default:
    @just --list

# formatting and lints
check:
    ./mcpx-dev check

# every test
test *args:
    ./mcpx-dev test {{ args }}

# optimised, with deno and bun to compare with
bench *args:
    ./mcpx-dev bench {{ args }}

# a script with the example servers
run script *args:
    ./mcpx-dev run {{ script }} {{ args }}
