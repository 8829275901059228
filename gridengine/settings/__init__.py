"""Settings: their definitions, their sources, and their values.

    defaults < the user's settings.toml < the project's gridengine.toml < GRIDENGINE_* variables

The later source wins. The result is one frozen `Settings` for the process, made at its first use.
Read `schema` first, then `values`. `locations` says where the files are; `files` reads those that
are trusted.

Keep in step: a field of `schema.Settings`, and its row in docs/settings.md, where its meaning is.

Rejected:

- A warning for an unknown `GRIDENGINE_*` variable. It is an error, even when it resembles no
  setting: a misspelt one that runs a sweep in the wrong place costs more than an `unset`.
- An error for a file that somebody else could have written. It is ignored with a warning, as `ssh`
  ignores its own: otherwise a file in `/tmp` would keep everybody from working there. It is not
  trusted because its options are added to submissions, and Grid Engine's `-S`, for example, names a
  program.
- Interpreters and shell lines in settings. They are arguments of a scheduler: a project's file must
  not name code. For the same reason it cannot name `drmaa_library`.
- Another TOML parser. The standard library's does not say in which line a key is; a small scan of
  the text does (`files.lines_of`), and an error needs no more.
"""
