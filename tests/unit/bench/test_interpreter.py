"""How a Python was built, from the record of its build and from the package that it came in."""

from bench.interpreter import read_build


def test_a_plain_build_has_neither_though_it_knows_the_flags():
    record = {"CONFIG_ARGS": "'--prefix=/opt' '--enable-shared'", "PGO_PROF_USE_FLAG": "-fprofile-use"}
    build = read_build(record, "")
    assert not build.pgo
    assert not build.lto
    assert not build.is_optimized
    assert build.told == "built without PGO and without LTO (by its build's record)"


def test_arguments_of_configure_tell():
    assert read_build({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}, "").is_optimized
    assert read_build({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto=thin'"}, "").is_optimized
    assert not read_build({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto=no'"}, "").lto
    assert not read_build({"CONFIG_ARGS": "'--enable-optimizations'"}, "").is_optimized


def test_flags_of_the_compiler_tell():
    record = {"PY_CORE_CFLAGS": "-O3 -fprofile-use -fprofile-correction", "PY_CORE_LDFLAGS": "-flto"}
    assert read_build(record, "").is_optimized


def test_the_packages_of_distributions_are_built_with_both_and_named():
    build = read_build({"CONFIG_ARGS": "'--prefix=/usr'"}, "python3.11-minimal 3.11.2-6")
    assert build.is_optimized
    assert "python3.11-minimal 3.11.2-6" in build.told
