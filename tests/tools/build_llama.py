"""Builds the installed version of llama-cpp-python again, with RPC or Vulkan, in a folder.

`python -m tests.tools.build_llama FOLDER --rpc --vulkan`. With `PYTHONPATH=FOLDER/site` eaglechat
uses that build; `FOLDER/ggml-rpc-server` is llama.cpp's RPC server. On Debian, Vulkan needs the
packages glslc, libvulkan-dev and spirv-headers, and without a GPU mesa-vulkan-drivers too. A second
call compiles only what has changed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

_NEEDS_NEW_HEADERS = """    std::vector<vk::LayerSettingEXT> settings = {
        {
            "VK_LAYER_KHRONOS_validation",
            "validate_best_practices",
            vk::LayerSettingTypeEXT::eBool32,
            1,
            &enable_best_practice
        },
    };
    vk::LayerSettingsCreateInfoEXT layer_setting_info(settings);
    vk::InstanceCreateInfo instance_create_info(vk::InstanceCreateFlags{}, &app_info, layers, \
extensions, &layer_setting_info);
"""
_WITHOUT = """    (void) enable_best_practice;
    vk::InstanceCreateInfo instance_create_info(vk::InstanceCreateFlags{}, &app_info, layers, \
extensions);
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.build_llama", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rpc", action="store_true")
    parser.add_argument("--vulkan", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    folder = args.folder.resolve()
    source = _source(folder)
    if args.vulkan:
        _allow_old_headers(source)
    _compile(source, folder / "build", args)
    _assemble(source, folder)
    if args.rpc:
        _rpc_server(source, folder)
    print(f"PYTHONPATH={folder / 'site'} has it")


def _source(folder: Path) -> Path:
    """The unpacked source of the installed version."""
    name = f"llama_cpp_python-{version('llama-cpp-python')}"
    if not (folder / name).is_dir():
        archive = folder / f"{name}.tar.gz"
        if not archive.is_file():
            wanted = f"llama-cpp-python=={version('llama-cpp-python')}"
            _run(
                sys.executable, "-m", "pip", "download", "--no-deps",
                "--no-binary", "llama-cpp-python", "--dest", str(folder), wanted,
            )  # fmt: skip
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return folder / name


def _allow_old_headers(source: Path) -> None:
    """Debian 12's Vulkan headers lack the settings of layers, which only debugging needs."""
    code = source / "vendor/llama.cpp/ggml/src/ggml-vulkan/ggml-vulkan.cpp"
    text = code.read_text(encoding="utf-8")
    if _NEEDS_NEW_HEADERS in text:
        code.write_text(text.replace(_NEEDS_NEW_HEADERS, _WITHOUT), encoding="utf-8")


def _compile(source: Path, build: Path, args: argparse.Namespace) -> None:
    backends = [f"-DGGML_{name.upper()}=ON" for name in ("rpc", "vulkan") if getattr(args, name)]
    _run(
        "cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release",
        f"-DSKBUILD_PLATLIB_DIR={build}", "-DLLAVA_BUILD=OFF", *backends,
    )  # fmt: skip
    _run("cmake", "--build", str(build), "--target", "llama", "-j", str(args.jobs))


def _assemble(source: Path, folder: Path) -> None:
    """The Python package with the libraries that were compiled."""
    package = folder / "site/llama_cpp"
    shutil.copytree(source / "llama_cpp", package, dirs_exist_ok=True)
    (package / "lib").mkdir(exist_ok=True)
    for library in (folder / "build").rglob("lib*.so*"):
        shutil.copy2(library, package / "lib" / library.name)


def _rpc_server(source: Path, folder: Path) -> None:
    llama, libraries = source / "vendor/llama.cpp", folder / "site/llama_cpp/lib"
    _run(
        "c++", "-std=c++17", "-O2", str(llama / "tools/rpc/rpc-server.cpp"),
        f"-I{llama / 'ggml/include'}", f"-L{libraries}", "-lggml", "-lggml-base",
        f"-Wl,-rpath,{libraries},-rpath-link,{libraries}", "-lpthread",
        "-o", str(folder / "ggml-rpc-server"),
    )  # fmt: skip


def _run(*command: str) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
