"""Forks: the two ends of the stream, embedding and head, and what falls on the way while training."""

from __future__ import annotations

from dataclasses import replace

from morph.config import MTP, Dropout, LogitCap, LogitScale, ModelConfig
from morph.forks.entry import Fork
from morph.steps import Size


def _untied(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, tied=False)


def _embedding_scale(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, embedding_scale=1.0)


def _logit_scale(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, logits=LogitScale(scale=0.0625))


def _logit_cap(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, logits=LogitCap())


def _dropout(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, dropout=Dropout())


def _mtp(config: ModelConfig, size: Size) -> ModelConfig:
    return replace(config, mtp=MTP())


STREAM: tuple[Fork, ...] = (
    Fork(
        "untied", "rope", "A head of its own", 2023, "Llama", "ffn", ("tied",),
        "the head is the embedding's transpose", "the head is a matrix of its own",
        "Reading a token in and writing it out are two tasks; one table for both saves V x D weights, which is much of "
        "a small model and little of a large one. Llama 2, Qwen3 from 8B up, DeepSeek and gpt-oss have two; Gemma, "
        "Command A and many small models have one. (On `rope`, a dense model as Llama was: experts would add "
        "nothing to the question.)",
        "with the embedding copied into the head, the same function",
        ("Llama 2 and 3", "gpt-oss", "DeepSeek-V3"),
        "Press & Wolf, Using the Output Embedding to Improve Language Models, 2017; Touvron et al., LLaMA, 2023",
        _untied,
    ),
    Fork(
        "embedding-scale", "rope", "Embeddings as they are", 2019, "GPT-2; Llama", "position", ("embedding_scale",),
        "rows of the table times √D", "rows of the table as they are",
        "How loud should the token itself be, beside what the layers add? 2017 multiplied by √D, and Gemma and Trinity "
        "do; GPT-2, Llama, Qwen and DeepSeek read the rows as they are, so that the first layers soon outweigh them.",
        "with the embedding √D times larger and the head as it was, the same function",
        ("GPT-2", "Llama 3", "Qwen3", "DeepSeek-V3", "gpt-oss"),
        "Vaswani et al., Attention Is All You Need, 2017; Radford et al., GPT-2, 2019",
        _embedding_scale,
    ),
    Fork(
        "logit-scale", "rope", "Logits times a constant", 2024, "Command R", "ffn", ("logits",),
        "logits as the head gives them", "logits times 1/16",
        "The rows of a tied table serve two ends that want different sizes, and a constant lets each have its own. "
        "Command R has 1/16, Command A 1/4; most models leave it to the final norm's gain.",
        "at a scale of 1, or with the final norm's gain 16 times larger, the same function",
        ("Command R", "Command A (1/4)"),
        "Cohere, Command R, 2024",
        _logit_scale,
    ),
    Fork(
        "logit-cap", "rope", "Logits within ± 30", 2024, "Gemma 2", "ffn", ("logits",),
        "logits as the head gives them", "30 tanh(logits / 30)",
        "Nothing bounds a logit, and cross-entropy drives the right one up for ever. Gemma 2 bends them, and the "
        "scores of its attention, with tanh; Gemma 3 dropped both for QK-norm. Others add a penalty on large logits.",
        "the wider the cap the closer: logits differ by at most |z|³ / 2700, and by nothing as the cap grows",
        ("Gemma 2",),
        "Gemma Team, Gemma 2, 2024",
        _logit_cap,
    ),
    Fork(
        "dropout", "rope", "Dropout", 2017, "the Transformer of 2017", "ffn", ("dropout",),
        "every feature always counts", "while training, a tenth of what is added to the stream is 0",
        "Dropout keeps a model from learning its text by heart. The Transformer of 2017 read its text many times and "
        "had 0.1; models that read each text once, from PaLM and Llama on, have none.",
        "outside training the same function; as the rate goes to 0, in training too",
        ("Transformer (2017)", "GPT-2"),
        "Srivastava et al., Dropout, 2014; Vaswani et al., Attention Is All You Need, 2017",
        _dropout,
    ),
    Fork(
        "mtp", "hybrid", "Multi-token prediction", 2024, "DeepSeek-V3", "ffn", ("mtp",),
        "each token is asked for the next one", "and, through one block more, for the one after that",
        "A second target makes a state plan ahead, and the head that learned it can draft tokens, which the trunk "
        "checks two at a time. It costs a block while training. DeepSeek-V3, GLM-4.5 and Qwen3-Next have such a head, "
        "MiniMax-M2 and Step 3.7 three; most models have none. (On `hybrid`, where a draft that fails must be taken "
        "back from recurrent states too.)",
        "the same logits and the same text; as the weight goes to 0, the same loss",
        ("DeepSeek-V3", "GLM-4.5", "Qwen3-Next"),
        "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024; Gloeckle et al., Multi-token Prediction, 2024",
        _mtp,
    ),
)  # fmt: skip
