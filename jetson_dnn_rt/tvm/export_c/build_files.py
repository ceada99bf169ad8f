"""Makefile and CMakeLists.txt of exported sources."""

from __future__ import annotations

from jetson_dnn_rt.tvm.target import TvmTarget

ISO, GNU = KERNELS = ("iso", "gnu")
"""How kernels are written: loops only, or vectors of GNU C."""


def find_compiler_flag(target: TvmTarget, local: bool) -> str:
    """What tells gcc and clang about the processor.

    Parameters
    ----------
    target : TvmTarget
        What the code is for.
    local : bool
        Whether that is this machine.
    """
    if local:
        return "-mcpu=native" if target.triple.startswith("aarch64") else "-march=native"
    # LLVM and gcc have the same names, but an older gcc does not know a new one.
    option = "-mcpu" if target.triple.startswith("aarch64") else "-march"
    return f"{option}={target.cpu}"


def write_makefile(name: str, flag: str, *, array: bool) -> str:
    """``Makefile``: library, self-test, ``make test``."""
    weights = f" {name}_weights.o" if array else ""
    return f"""\
# Written by jetson-dnn-rt export-c.
#   make                      {name}_selftest and lib{name}.a
#   make test                 runs the self-test
#   make KERNELS=iso          kernels without vectors of GNU C, for other compilers; slower
#   make CC=aarch64-linux-gnu-gcc ARCH=-mcpu=cortex-a78ae
CC = gcc
AR = ar
ARCH = {flag}
KERNELS = gnu
OPT = -O3
CFLAGS = -std=c99 -Wall -Wextra -Werror $(OPT) $(ARCH) -ffp-contract=fast $(CFLAGS_EXTRA)

SUFFIX_gnu = _gnu
OBJECTS = {name}.o {name}_kernels$(SUFFIX_$(KERNELS)).o{weights}

all: lib{name}.a {name}_selftest

lib{name}.a: $(OBJECTS)
	rm -f $@
	$(AR) rcs $@ $(OBJECTS)

{name}_selftest: {name}_selftest.o lib{name}.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ {name}_selftest.o lib{name}.a -lm

%.o: %.c {name}.h {name}_kernels.h Makefile
	$(CC) $(CFLAGS) -c -o $@ $<

test: {name}_selftest
	./{name}_selftest .

clean:
	rm -f *.o lib{name}.a {name}_selftest

.PHONY: all test clean
"""


def write_cmake(name: str, flag: str, *, array: bool) -> str:
    """``CMakeLists.txt``: the same."""
    weights = f" {name}_weights.c" if array else ""
    return f"""\
# Written by jetson-dnn-rt export-c.
cmake_minimum_required(VERSION 3.10)
project({name} C)

set(ARCH "{flag}" CACHE STRING "what tells the compiler about the processor")
set(KERNELS "gnu" CACHE STRING "gnu: with vectors of GNU C; iso: plain C99, slower")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
if(KERNELS STREQUAL "gnu")
  set(kernels {name}_kernels_gnu.c)
else()
  set(kernels {name}_kernels.c)
endif()

add_library({name} STATIC {name}.c ${{kernels}}{weights})
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_options({name} PRIVATE -Wall -Wextra -Werror -ffp-contract=fast ${{ARCH}})
target_link_libraries({name} PUBLIC m)

add_executable({name}_selftest {name}_selftest.c)
target_compile_options({name}_selftest PRIVATE -Wall -Wextra -Werror)
target_link_libraries({name}_selftest {name})

enable_testing()
add_test(NAME {name}_selftest COMMAND {name}_selftest ${{CMAKE_CURRENT_SOURCE_DIR}})
"""
