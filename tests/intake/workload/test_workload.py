"""Workloads from the files and lines that people have. Sizes of models: their public config.json; parameters: their model cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.workload import Layout, Model, Workload
from kilter.intake.errors import UnusableInput
from kilter.intake.workload.load import dump_workload, load_workload
from kilter.intake.workload.messages import checkpoint_bytes, contradictions, messages
from kilter.intake.workload.model_config import is_model_config, kv_bytes_per_token, model_of
from kilter.intake.workload.read import read_sources
from kilter.intake.workload.shell import commands

EXAMPLES = Path(__file__).parents[3] / "examples"


def llama(**more: object) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **more,
    }


DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
    "tie_word_embeddings": False, "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip

#: config.json -> (billions of parameters, active ones, attention)
MODELS = [
    (llama(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256), 8.03, 8.03, "gqa"),
    (llama(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8, vocab_size=128256), 70.55, 70.55, "gqa"),
    (llama(hidden_size=16384, intermediate_size=53248, num_hidden_layers=126, num_attention_heads=128, num_key_value_heads=8, vocab_size=128256), 405.85, 405.85, "gqa"),
    (llama(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32, vocab_size=32000), 6.74, 6.74, "mha"),
    ({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000, "tie_word_embeddings": False}, 46.7, 12.88, "gqa"),
    ({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False}, 7.62, 7.62, "gqa"),
    ({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936, "tie_word_embeddings": False}, 235.1, 22.2, "gqa"),
    (DEEPSEEK, 671.0, 37.5, "mla"),
    ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}, 0.1244, 0.1244, "mha"),
    ({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000}, 9.24, 9.24, "gqa"),
    ({"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "multi_query": True, "new_decoder_architecture": False, "vocab_size": 65024}, 6.92, 6.92, "mqa"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "total", "active", "attention"),
    MODELS,
    ids=lambda v: str(v.get("architectures"))[:40] if isinstance(v, dict) else "",
)
def test_parameters_are_those_of_the_model_card(config, total, active, attention) -> None:
    assert is_model_config(config)
    model = model_of(config)
    assert model.parameters == pytest.approx(total * 1e9, rel=0.01)
    assert model.active_parameters == pytest.approx(active * 1e9, rel=0.01)
    assert model.attention == attention


def test_what_one_token_takes_in_the_cache() -> None:
    assert kv_bytes_per_token(model_of(MODELS[0][0])) == 2 * 32 * 8 * 128 * 2
    assert kv_bytes_per_token(model_of(DEEPSEEK)) == 61 * (512 + 64) * 2
    assert kv_bytes_per_token(Model()) is None


def test_the_language_model_of_one_with_several_parts() -> None:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "vision_config": {"hidden_size": 1152},
        "text_config": MODELS[0][0],
    }
    assert model_of(config).hidden == 4096


def test_layers_of_another_kind_are_not_counted() -> None:
    config = {**MODELS[0][0], "layer_types": ["linear_attention", "full_attention"]}
    model = model_of(config)
    assert model.parameters is None
    assert model.layers == 32


# --- launch lines


def line(text: str) -> Workload:
    return read_sources([], text)


def test_megatron_script() -> None:
    work = read_sources([str(EXAMPLES / "megatron-8b.sh")])
    layout = work.layout
    assert (work.kind, work.framework, work.precision) == ("pretrain", "megatron", "bf16")
    assert (work.nodes, work.gpus, work.gpus_per_node, work.multi_node) == (4, 32, 8, True)
    assert (layout.tp, layout.pp, layout.dp, layout.micro_batch, layout.global_batch) == (4, 2, 4, 1, 256)
    assert (layout.sharding, layout.sequence_parallel) == ("distributed_optimizer", True)
    assert work.environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_IB_TIMEOUT": "22"}
    assert work.model is not None
    assert (work.model.layers, work.model.kv_heads, work.model.attention) == (32, 8, "gqa")
    assert contradictions(work) == []


LINES = [
    ("vllm serve meta-llama/Llama-3.1-70B -tp 4 --max-num-seqs 128 --kv-cache-dtype fp8", {"kind": "inference", "framework": "vllm", "gpus": 4, "concurrency": 128, "kv_cache_dtype": "fp8"}, {"tp": 4}),
    ("NCCL_DEBUG=WARN python3 -m vllm.entrypoints.openai.api_server --model=Qwen/Qwen3-8B --tensor-parallel-size=2 --data-parallel-size 4", {"framework": "vllm", "gpus": 8, "environment": {"NCCL_DEBUG": "WARN"}}, {"tp": 2, "dp": 4}),
    ("docker run --gpus all -e NCCL_P2P_DISABLE=1 vllm/vllm-openai:v0.10.2 --model x/y -tp 8 --enforce-eager", {"framework": "vllm", "framework_version": "0.10.2", "cuda_graphs": False, "environment": {"NCCL_P2P_DISABLE": "1"}}, {"tp": 8}),
    ("python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --nnodes 2 --node-rank 0 --speculative-algorithm EAGLE", {"framework": "sglang", "nodes": 2, "multi_node": True, "speculative": "EAGLE"}, {"tp": 16}),
    ("trtllm-serve serve nvidia/Llama-3.1-8B-Instruct-FP8 --tp_size 2 --max_batch_size 64", {"framework": "tensorrt_llm", "concurrency": 64}, {"tp": 2}),
    ("text-generation-launcher --model-id tiiuae/falcon-7b --num-shard 2 --quantize awq", {"framework": "tgi", "kind": "inference"}, {"tp": 2}),
    ("torchrun --nnodes=2 --nproc_per_node=8 -m torchtitan.train --job.config_file x.toml --parallelism.tensor_parallel_degree 8", {"framework": "torchtitan", "gpus": 16, "kind": "pretrain"}, {"tp": 8, "dp": 2, "sharding": "fsdp2"}),
    ("deepspeed --num_gpus 8 --num_nodes 2 train.py --deepspeed ds.json --per_device_train_batch_size 4", {"framework": "deepspeed", "gpus": 16, "nodes": 2}, {"sharding": "zero", "micro_batch": 4}),
    ("python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.rollout.name=vllm actor_rollout_ref.actor.strategy=fsdp2 trainer.nnodes=2 trainer.n_gpus_per_node=8", {"kind": "rl", "framework": "verl", "rollout_engine": "vllm", "gpus": 16}, {"sharding": "fsdp2"}),
    ("torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --use-megatron-fsdp --num-layers 2", {"framework": "megatron", "gpus": 8, "nodes": 1, "multi_node": False}, {"tp": 2, "sharding": "megatron_fsdp"}),
    ("accelerate launch --use_fsdp --num_processes 16 --num_machines 2 finetune.py --model_name_or_path a/b", {"framework": "fsdp", "kind": "sft", "gpus": 16, "nodes": 2}, {}),
    ("torchrun --nproc_per_node=8 --nnodes=4 train.py --enable_fsdp", {"framework": "pytorch", "kind": None, "gpus": 32, "nodes": 4}, {"sharding": "fsdp1"}),
    ("srun -N 2 python3 -m torch.distributed.run --nproc_per_node 8 finetune.py", {"framework": "pytorch", "kind": "sft", "nodes": 2, "gpus": 16}, {}),
    ("torchrun --nproc-per-node=8 launch.py --factory 'recipe()' trainer.num_nodes=16 trainer.devices=8", {"framework": "nemo", "nodes": 16, "gpus": 128}, {}),
    ("TORCHRUN=torchrun\nsrun $TORCHRUN --nproc_per_node 4 x.py", {"framework": "pytorch", "gpus_per_node": 4}, {}),
    ('srun sh -c "python -u pretrain_gpt.py --tensor-model-parallel-size 4 --num-layers 8"', {"framework": "megatron"}, {"tp": 4}),
    ("mpirun -np 16 -x NCCL_ALGO=Ring python pretrain_gpt.py --tensor-model-parallel-size 8", {"framework": "megatron", "gpus": 16, "environment": {"NCCL_ALGO": "Ring"}}, {"tp": 8, "dp": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "fields", "layout"), LINES, ids=lambda v: v[:30] if isinstance(v, str) else "")
def test_launch_lines(text, fields, layout) -> None:
    work = line(text)
    assert {name: getattr(work, name) for name in fields} == fields
    assert {name: getattr(work.layout, name) for name in layout} == layout


@pytest.mark.parametrize("text", ["ls -l", "echo vllm is nice", "python train.py --epochs 3", "", "\x00\xff"])
def test_what_starts_nothing_known_is_an_error_that_says_what_is_read(tmp_path, text) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(UnusableInput, match=r"expected a Hugging Face config\.json"):
        read_sources([str(path)])


def write(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_files_of_frameworks(tmp_path) -> None:
    deepspeed = read_sources(
        [
            write(
                tmp_path,
                "ds.json",
                json.dumps({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 2}),
            )
        ]
    )
    assert (deepspeed.layout.sharding, deepspeed.layout.zero_stage, deepspeed.precision) == ("zero", 3, "bf16")
    accelerate = read_sources(
        [
            write(
                tmp_path,
                "a.yaml",
                "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nnum_processes: 8\nnum_machines: 1\nmixed_precision: bf16\n",
            )
        ]
    )
    assert (accelerate.framework, accelerate.layout.sharding, accelerate.gpus) == ("fsdp", "fsdp2", 8)
    factory = read_sources(
        [
            write(
                tmp_path,
                "f.yaml",
                "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\nper_device_train_batch_size: 1\ncutoff_len: 4096\n",
            )
        ]
    )
    assert (factory.kind, factory.sequence_length) == ("sft", 4096)


def test_torchtitan_toml(tmp_path) -> None:
    pytest.importorskip("tomllib")
    path = write(
        tmp_path,
        "t.toml",
        '[job]\ndump_folder = "x"\n[training]\nseq_len = 8192\nlocal_batch_size = 1\n[parallelism]\ntensor_parallel_degree = 8\ndata_parallel_replicate_degree = 2\n',
    )
    work = read_sources([path])
    assert (work.framework, work.sequence_length, work.layout.tp, work.layout.sharding) == ("torchtitan", 8192, 8, "hsdp")


def test_kubernetes_manifest(tmp_path) -> None:
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n      - name: x\n        image: vllm/vllm-openai:v0.9.1\n"
        "        args: [--model, a/b, --tensor-parallel-size, '8']\n        env:\n        - {name: NCCL_DEBUG, value: INFO}\n"
        "        resources: {limits: {nvidia.com/gpu: 8}}\n"
    )
    work = read_sources([write(tmp_path, "d.yaml", text)])
    assert (work.framework, work.framework_version, work.layout.tp, work.gpus_per_node) == ("vllm", "0.9.1", 8, 8)
    assert work.environment == {"NCCL_DEBUG": "INFO"}


def test_the_first_source_wins_and_others_fill_in(tmp_path) -> None:
    config = write(tmp_path, "config.json", json.dumps(DEEPSEEK))
    work = read_sources([config], "vllm serve deepseek-ai/DeepSeek-V3 -tp 8")
    assert work.model is not None
    assert (work.model.name, work.model.experts, work.layout.tp) == ("deepseek-ai/DeepSeek-V3", 256, 8)


def test_a_workload_file_is_read_back(tmp_path) -> None:
    work = line(LINES[0][0])
    path = tmp_path / "w.yaml"
    path.write_text(dump_workload(work))
    assert load_workload(path) == work
    assert read_sources([str(path)]).layout == work.layout


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("- a", "expected a mapping"),
        ("kind: cooking", "expected one of"),
        ("speed: 1", "unknown field 'speed'"),
        ("gpus: many", "gpus"),
        ("a: [", "no YAML"),
        ("layout: 3", "layout"),
    ],
)
def test_bad_workload_files(tmp_path, text, word) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    with pytest.raises(UnusableInput, match=word):
        load_workload(path)


# --- messages


def test_messages_of_a_layout_by_hand() -> None:
    model = Model(layers=32, hidden=4096, heads=32, parameters=8_000_000_000)
    layout = Layout(tp=4, pp=2, dp=4, micro_batch=1, global_batch=256, sharding="distributed_optimizer", sequence_parallel=True)
    work = Workload(
        kind="pretrain", framework="megatron", model=model, layout=layout, sequence_length=8192, gpus_per_node=8, precision="bf16"
    )
    found = {m.what.partition(" (")[0]: m for m in messages(work)}
    gather = found["all-gather of activations"]
    assert (gather.bytes, gather.per_step, gather.inside_node) == (8192 * 4096 * 2, 4 * 16 * 64, True)
    assert found["send of activations and their gradients"].bytes == 8192 * 4096 * 2 // 4
    assert found["reduce-scatter of gradients"].bytes == 8_000_000_000 // 8 * 4
    assert found["all-gather of weights"].bytes == 8_000_000_000 // 8 * 2
    assert checkpoint_bytes(work) == 112_000_000_000


def test_decoding() -> None:
    work = Workload(kind="inference", model=Model(layers=80, hidden=8192), layout=Layout(tp=8), concurrency=64, gpus_per_node=8)
    (message,) = messages(work)
    assert (message.bytes, message.per_step) == (64 * 8192 * 2, 160)


@pytest.mark.parametrize(
    ("work", "word"),
    [
        (Workload(kind="pretrain", gpus=12, layout=Layout(tp=8)), "no multiple"),
        (Workload(kind="pretrain", gpus=16, layout=Layout(tp=4, dp=2)), "TP x PP x CP x DP = 8"),
        (Workload(kind="pretrain", gpus=32, gpus_per_node=8, layout=Layout(tp=16)), "spans nodes"),
        (Workload(kind="sft", model=Model(heads=30), layout=Layout(tp=4)), "attention heads"),
        (Workload(kind="sft", model=Model(experts=60), layout=Layout(ep=8)), "experts"),
        (Workload(kind="sft", model=Model(max_positions=4096), sequence_length=8192), "positions"),
        (Workload(kind="pretrain", layout=Layout(global_batch=100, micro_batch=3, dp=8)), "global batch"),
    ],
)
def test_what_cannot_be(work, word) -> None:
    assert any(word in one for one in contradictions(work))


# --- anything


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=400)
    | st.lists(
        st.sampled_from(["A=(", ")", '"', "'", "$A", "${A[@]}", "\\\n", "#", "vllm serve x", "--tp", "8", "\n", "$((1/0))", " "]),
        max_size=40,
    ).map(" ".join)
)
def test_any_script_gives_words(text) -> None:
    for command in commands(text):
        assert command.words


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 10**9) | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "hidden_size",
                        "text_config",
                        "num_hidden_layers",
                        "architectures",
                        "model_type",
                        "layer_types",
                        "vocab_size",
                        "num_attention_heads",
                        "intermediate_size",
                        "n_routed_experts",
                        "moe_layer_freq",
                        "containers",
                        "kubernetes",
                        "zero_optimization",
                        "distributed_type",
                        "quantization_config",
                    ]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_an_error(tree) -> None:
    try:
        read_sources([], json.dumps(tree))
    except UnusableInput as error:
        assert str(error)  # noqa: PT017
