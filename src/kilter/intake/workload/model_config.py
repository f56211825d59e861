"""Model configurations of Hugging Face (config.json): sizes, attention, experts, and parameters counted from them.

Names of fields: huggingface/transformers, ``src/transformers/models/*/configuration_*.py``. A model whose layers are not all of one known kind
(linear attention, state spaces) gets its sizes, and no count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilter.facts.workload import Model

#: Field of :class:`Model` -> names that configurations give it.
_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "n_kv_heads"),
    "head_dim": ("head_dim", "kv_channels"),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "max_positions": ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length"),
    "sliding_window": ("sliding_window",),
    "kv_lora_rank": ("kv_lora_rank",),
    "q_lora_rank": ("q_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "experts_per_token"),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "moe_intermediate": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "dense_layers": ("first_k_dense_replace",),
}
#: Architectures whose feed-forward layer has two matrices, not three.
_UNGATED = ("GPT2", "OPT", "GPTNeoX", "GPTJ", "GPTBigCode", "Falcon", "PhiFor", "Starcoder2", "Bloom", "MPT")
#: Families whose configuration leaves a default of the class out.
_TIED_BY_DEFAULT = ("gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "opt", "falcon", "bloom")


def is_model_config(tree: object) -> bool:
    return (
        isinstance(tree, dict)
        and ("model_type" in tree or "architectures" in tree)
        and ("text_config" in tree or _has(tree, "layers"))
    )


def _has(tree: Mapping[str, Any], field: str) -> bool:
    return any(isinstance(tree.get(name), int) for name in _NAMES[field])


def model_of(tree: Mapping[str, Any], name: str | None = None) -> Model:
    """The model of a parsed config.json; of one with several parts (vision, audio) the language model."""
    inner = next((tree[key] for key in ("text_config", "llm_config", "language_config") if isinstance(tree.get(key), dict)), None)
    config = {**tree, **inner} if inner else dict(tree)
    model = Model()
    for field, names in _NAMES.items():
        value = next((config[n] for n in names if isinstance(config.get(n), int) and not isinstance(config.get(n), bool)), None)
        if value is not None and value >= 0:
            model.put(field, value)
    architectures = tree.get("architectures")
    if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
        model.put("architecture", architectures[0])
    path = tree.get("_name_or_path")
    model.put("name", name or (path if isinstance(path, str) and path else None))
    dtype = config.get("dtype") or config.get("torch_dtype") or tree.get("torch_dtype")
    model.put("dtype", dtype if isinstance(dtype, str) else None)
    quantization = tree.get("quantization_config") or config.get("quantization_config")
    if isinstance(quantization, dict):
        model.put("quantization", str(quantization.get("quant_method") or quantization.get("quant_algo") or "") or None)
    kind = str(config.get("model_type") or "")
    tied = tree.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    model.put("tied_embeddings", tied if isinstance(tied, bool) else kind in _TIED_BY_DEFAULT)
    if kind == "falcon" and config.get("multi_query") and not config.get("new_decoder_architecture"):
        model.put("kv_heads", 1)
    _derive(model, config)
    _count(model, config)
    return model


def _derive(model: Model, config: Mapping[str, Any]) -> None:
    if model.heads and model.kv_heads is None:
        model.put("kv_heads", model.heads)
    if model.hidden and model.heads and model.head_dim is None and model.hidden % model.heads == 0:
        model.put("head_dim", model.hidden // model.heads)
    if (
        model.intermediate is None
        and model.hidden
        and str(config.get("model_type")) in ("gpt2", "falcon", "bloom", "gpt_bigcode")
    ):
        model.put("intermediate", 4 * model.hidden)
    if model.kv_lora_rank:
        model.put("attention", "mla")
    elif model.heads and model.kv_heads:
        model.put("attention", "mha" if model.kv_heads == model.heads else "mqa" if model.kv_heads == 1 else "gqa")
    if model.experts is not None and model.experts <= 1:
        model.experts = None
    if model.experts and model.moe_intermediate is None and model.intermediate:
        model.put("moe_intermediate", model.intermediate)


def _attention(model: Model, config: Mapping[str, Any]) -> int:
    """Parameters of one layer's attention."""
    h, n = model.hidden or 0, model.heads or 0
    if model.kv_lora_rank:
        nope, rope = model.qk_nope_head_dim or 0, model.qk_rope_head_dim or 0
        v = model.v_head_dim or nope
        q = n * (nope + rope)
        query = h * model.q_lora_rank + model.q_lora_rank * (q + 1) if model.q_lora_rank else h * q
        return query + h * (model.kv_lora_rank + rope) + model.kv_lora_rank * (n * (nope + v) + 1) + n * v * h
    d, kv = model.head_dim or 0, model.kv_heads or n
    found = h * d * (n + 2 * kv) + n * d * h
    kind = str(config.get("model_type") or "")
    if (
        config.get("attention_bias")
        or config.get("qkv_bias")
        or kind.startswith(("qwen2", "gpt2", "opt", "gpt_neox", "phi", "glm"))
    ):
        found += d * (n + 2 * kv)
    if kind.startswith("qwen3") or config.get("use_qk_norm"):
        found += 2 * d
    return found


def _layers_with_experts(model: Model, config: Mapping[str, Any]) -> int:
    layers, first = model.layers or 0, model.dense_layers or 0
    step = config.get("decoder_sparse_step") or config.get("moe_layer_freq") or config.get("interleave_moe_layer_step") or 1
    if isinstance(step, list):
        return sum(1 for one in step if one)
    only_dense = config.get("mlp_only_layers") or []
    every = [n for n in range(first, layers) if step <= 1 or (n + 1) % step == 0]
    return sum(1 for n in every if n not in only_dense)


def _count(model: Model, config: Mapping[str, Any]) -> None:
    kinds = set(config.get("layer_types") or [])
    hybrid = any(isinstance(k, str) and ("linear" in k or "mamba" in k or "recurrent" in k) for k in kinds)
    if hybrid or any(
        key in config
        for key in ("ssm_cfg", "mamba_d_state", "attn_type_list", "linear_num_value_heads", "hybrid_override_pattern")
    ):
        return
    h, layers, vocab = model.hidden, model.layers, model.vocab
    if not (h and layers and vocab and model.heads and (model.intermediate or model.moe_intermediate)):
        return
    matrices = 2 if (model.architecture or "").startswith(_UNGATED) else 3
    dense_mlp = matrices * h * (model.intermediate or 0)
    norms = (4 if str(config.get("model_type")).startswith(("gemma2", "gemma3")) else 2) * h
    total = layers * (_attention(model, config) + norms) + h
    total += vocab * h * (1 if model.tied_embeddings else 2)
    if str(config.get("model_type")) in ("gpt2", "opt"):
        total += (model.max_positions or 0) * h
    active = total
    sparse = _layers_with_experts(model, config) if model.experts else 0
    total += (layers - sparse) * dense_mlp
    active += (layers - sparse) * dense_mlp
    if model.experts and sparse:
        one = 3 * h * (model.moe_intermediate or 0)
        shared = (model.shared_experts or 0) * one
        if isinstance(wide := config.get("shared_expert_intermediate_size"), int) and wide:
            shared = 3 * h * wide + h
        router = h * model.experts
        total += sparse * (model.experts * one + shared + router)
        active += sparse * ((model.experts_per_token or 1) * one + shared + router)
    model.put("parameters", total)
    model.put("active_parameters", active)


def kv_bytes_per_token(model: Model, bytes_per_value: float = 2.0) -> float | None:
    """Bytes that one token takes in the KV cache, over all layers: the compressed vector for MLA, else keys and values."""
    if not model.layers:
        return None
    if model.kv_lora_rank:
        return model.layers * (model.kv_lora_rank + (model.qk_rope_head_dim or 0)) * bytes_per_value
    if not (model.kv_heads and model.head_dim):
        return None
    return 2 * model.layers * model.kv_heads * model.head_dim * bytes_per_value
