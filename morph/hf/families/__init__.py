"""The families of checkpoints that Morph reads and writes, by `model_type`.

How to add one: a file here with

- `read(s: Settings) -> ModelConfig`. Ask `s` for every key that matters, with the default that the family's class in
  transformers has (folders leave keys out): `s.whole(key, default)`, `number`, `flag`, `activation`;
  `whole_or_none` and `number_or_none` where a null means something else than a missing key;
  `s.words(key, n_layers, allowed)` for lists; `s.table(key)` for nested keys, `None` when absent;
  `s.only(key, value)` for an option that has one supported value; `s.ignore(key)` for keys that mean nothing here;
  `s.refuse(key, remedy)` for values that cannot be. A key that nobody asked for and that `HARMLESS` does not list is
  refused by the frame, nested ones too. `rotation.py` reads and writes rotations of every age, `parts.py` layouts
  (`read_windows`) and heads (`read_heads`).
- `write(config) -> dict`: the keys of config.json. Use `organ` (`parts.py`) where the family has one kind. What it
  writes is read back at once and compared, so a config that the family cannot hold is refused by field name. The frame
  adds model_type, architectures, dtype and null token ids.
- `rules(config) -> list[Rule]` (`morph.hf.weights`): every parameter and persistent buffer of ours once, every tensor
  of theirs once. `decoder_rules(config, norms=..., mixer=..., feed_forward=...)` builds the usual ones from functions
  `(config, layer) -> list[Rule]`. `copied`, `linear`, `transposed`, `fused`, `grouped`, `stacked` and `chained` make
  rules; `write` must run on meta tensors, as it tells the shapes to expect.
- a `Family` from these, listed in `FAMILIES` below. `other_rules` are forms of the same weights that are found on disk
  (the one with the fewest missing names is taken), `ignored(config)` patterns of names that no logit depends on.

Each has a parity test against transformers: tests/hf.py has the harness.
"""

from morph.hf.families.afmoe import AFMOE
from morph.hf.families.cohere2 import COHERE2
from morph.hf.families.deepseek import DEEPSEEK_V3, DEEPSEEK_V32, GLM_MOE_DSA, KIMI_K2
from morph.hf.families.family import Family as Family
from morph.hf.families.gemma import GEMMA2, GEMMA3, GEMMA3_IMAGES
from morph.hf.families.glm4_moe import GLM4_MOE
from morph.hf.families.gpt2 import GPT2
from morph.hf.families.gpt_oss import GPT_OSS
from morph.hf.families.kimi_linear import KIMI_LINEAR
from morph.hf.families.llama import LLAMA, MISTRAL
from morph.hf.families.minimax import MINIMAX
from morph.hf.families.mixtral import MIXTRAL
from morph.hf.families.olmo import OLMO2, OLMO3
from morph.hf.families.olmo_hybrid import OLMO_HYBRID
from morph.hf.families.qwen3 import QWEN3
from morph.hf.families.qwen3_moe import QWEN3_MOE
from morph.hf.families.qwen3_next import QWEN3_5, QWEN3_5_IMAGES, QWEN3_5_MOE, QWEN3_5_MOE_IMAGES, QWEN3_NEXT
from morph.hf.families.smollm3 import SMOLLM3
from morph.hf.families.step3p7 import STEP3P7

_DENSE = (GPT2, LLAMA, MISTRAL, GEMMA2, GEMMA3, QWEN3, OLMO2, OLMO3, SMOLLM3, COHERE2)
_EXPERTS = (MIXTRAL, QWEN3_MOE, GPT_OSS, GLM4_MOE, AFMOE, STEP3P7)
_HYBRID = (QWEN3_NEXT, QWEN3_5, QWEN3_5_MOE, OLMO_HYBRID, MINIMAX)
_LATENT = (DEEPSEEK_V3, KIMI_K2, DEEPSEEK_V32, GLM_MOE_DSA, KIMI_LINEAR)
_IMAGES = (GEMMA3_IMAGES, QWEN3_5_IMAGES, QWEN3_5_MOE_IMAGES)

FAMILIES: dict[str, Family] = {
    family.model_type: family for family in (*_DENSE, *_EXPERTS, *_HYBRID, *_LATENT, *_IMAGES)
}
