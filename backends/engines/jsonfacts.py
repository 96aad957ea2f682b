"""Reading bodies whose shape is up to the engine's version: what is missing is left out, nothing raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

# The engines' spellings of number formats -> ours. Names that do not tell the format (compressed-tensors, awq, "auto")
# are left out: a guess would contradict a right declaration.
_FORMATS: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "torch.float16": "fp16",
    "torch.float32": "fp32",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8_e5m2",
    "fp8_ds_mla": "fp8_ds_mla",
    "modelopt_fp8": "fp8",
    "w8a8_fp8": "fp8",
    "mxfp8": "mxfp8",
    "modelopt_fp4": "nvfp4",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
}


def decoded(body: bytes) -> Mapping[str, Any]:
    """The JSON object in a body; {} when it is anything else."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """The JSON objects in an array; [] when it is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def inner(value: object) -> Mapping[str, Any]:
    """The value as a JSON object; {} when it is none."""
    return value if isinstance(value, dict) else {}


def known(**terms: Any) -> Mapping[str, Any]:
    """The terms that were told: None and the text "None" (Prometheus labels) are left out."""
    return {term: value for term, value in terms.items() if value is not None and value != "None"}


def number_format(name: object) -> str | None:
    """Our name of a number format, None when the engine's name does not tell it."""
    return _FORMATS.get(str(name))
