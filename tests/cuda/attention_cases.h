// Checks of the attention kernels (kernels/cuda/attention.h) on any Device: values
// against a softmax over all positions in double precision, and equality of bits where
// src/README.md promises it. Scenes are those of attention_scene.h.

#pragma once

#include <vector>

#include "tests/cuda/attention_scene.h"
#include "tests/cuda/device_case.h"

namespace renga::test {

CheckResults CheckAttention(Device& device, CheckSize size);

// Its scenes: all kinds of pages and heads, ragged lengths, one and several tiles.
std::vector<SceneSpec> AttentionScenes(CheckSize size);

}  // namespace renga::test
