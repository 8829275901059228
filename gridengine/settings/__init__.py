"""Settings: which there are, who said each, and what holds.

In: defaults, the user's `settings.toml`, the project's `gridengine.toml`, `GRIDENGINE_*` variables;
the later over the earlier. Out: one frozen `Settings` for the process. Read `schema` first, then
`values`. `files` finds and reads the files, `trusted_files` says which are trusted.
"""
