// SPDX-License-Identifier: Apache-2.0
/// @file
/// Transformer encoders of the BERT family: token ids to one vector.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model.hpp"

namespace cohort::models {

/// The shape of an encoder.
struct encoder_config {
  std::string name;
  std::size_t hidden, layers, heads, inner, vocabulary, tokens;
  std::size_t layers_per_stage = 1;  ///< Divides `layers`.

  [[nodiscard]] model_interface info() const {
    return {name,
            {{"input_ids",
              data_type::i32,
              {static_cast<std::int64_t>(tokens)},
              runtime::value_range{0, static_cast<std::int64_t>(vocabulary) - 1}}},
            {{"pooled", data_type::f32, {static_cast<std::int64_t>(hidden)}}}};
  }
  [[nodiscard]] std::vector<tensor_spec> tensors() const {
    std::vector<tensor_spec> t;
    const auto add_norm = [&](const std::string& of) {
      t.push_back({of + ".gain", {hidden}, 0.05F, 1.0F});
      t.push_back({of + ".bias", {hidden}, 0.05F});
    };
    t.push_back({"embedding.token", {vocabulary, hidden}, 1.0F});
    t.push_back({"embedding.position", {tokens, hidden}, 0.2F});
    add_norm("embedding.norm");
    for (std::size_t l = 0; l < layers; ++l) {
      const std::string layer = layer_name(l);
      add_dense(t, layer + ".qkv", 3 * hidden, hidden);
      add_dense(t, layer + ".projection", hidden, hidden);
      add_norm(layer + ".norm1");
      add_dense(t, layer + ".up", inner, hidden);
      add_dense(t, layer + ".down", hidden, inner);
      add_norm(layer + ".norm2");
    }
    add_dense(t, "pooler", hidden, hidden);
    return t;
  }
  static std::string layer_name(std::size_t l) { return "layer" + std::to_string(l); }
};

/// Token 0 is padding; attention ignores tokens after the last one that is not 0. Stages:
/// embedding; the layers, `layers_per_stage` in each; pooling (a dense layer with tanh over the
/// first token). Between stages a row holds the hidden states, followed by the sequence's length.
/// For slices with a `size` only that many tokens are computed: sequences must not be longer.
template <ops Ops>
class encoder : public model_base<Ops> {
  using base = model_base<Ops>;

 public:
  using typename base::parameters;
  using typename base::stream;

  encoder(Ops o, parameters weights, std::uint32_t max_batch, encoder_config c)
      : base{o, std::move(weights), max_batch},
        c_{std::move(c)},
        state_{this->work_space(c_.tokens * c_.hidden)},
        lengths_{this->work_space(1)},
        wide_{this->work_space(c_.tokens * std::max(c_.inner, 3 * c_.hidden))},
        q_{this->work_space(c_.tokens * c_.hidden)},
        k_{this->work_space(c_.tokens * c_.hidden)},
        v_{this->work_space(c_.tokens * c_.hidden)},
        scores_{this->work_space(c_.heads * c_.tokens * c_.tokens)},
        merged_{this->work_space(c_.tokens * c_.hidden)},
        out_{this->work_space(c_.hidden)} {
    expects(c_.layers_per_stage > 0 && c_.layers % c_.layers_per_stage == 0,
            "encoder_config: layers_per_stage must divide layers");
  }

  [[nodiscard]] std::string_view name() const noexcept { return c_.name; }
  [[nodiscard]] std::size_t stages() const noexcept { return c_.layers / c_.layers_per_stage + 2; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const noexcept {
    if (i == 0) return c_.tokens * sizeof(std::int32_t);
    return i == stages() ? c_.hidden * sizeof(float) : state_bytes() + sizeof(float);
  }

  void enqueue(std::size_t stage, stream& s, const runtime::slice& x) {
    this->check(x);
    const std::size_t hidden = c_.hidden;
    const std::size_t tokens = x.size == 0 ? c_.tokens : std::min<std::size_t>(x.size, c_.tokens);
    const std::size_t n = x.count;
    const std::size_t used_bytes = tokens * hidden * sizeof(float);
    float* state = this->at(state_);
    float* lengths = this->at(lengths_);
    if (stage == 0) {
      const float* ids = this->gather(s, x, tokens * sizeof(std::int32_t), 0, q_);
      this->ops_.embed(s, reinterpret_cast<const std::int32_t*>(ids),
                       this->parameter("embedding.token"), this->parameter("embedding.position"),
                       state, lengths, n, tokens, hidden, c_.vocabulary);
      normalise(s, state, n * tokens, "embedding.norm");
    } else {
      if (stage == stages() - 1) {
        // The first token of each sequence.
        const float* heads = this->gather(s, x, hidden * sizeof(float), 0, merged_);
        float* out = this->target(x, boundary_bytes(stages()), out_);
        this->dense(s, heads, out, n, hidden, hidden, "pooler", activation::tanh);
        this->scatter(s, x, boundary_bytes(stages()), 0, out);
        return;
      }
      this->gather(s, x, used_bytes, 0, state_);
      this->gather(s, x, sizeof(float), state_bytes(), lengths_);
      for (std::size_t l = 0; l < c_.layers_per_stage; ++l) {
        layer(s, encoder_config::layer_name((stage - 1) * c_.layers_per_stage + l), state, lengths,
              n, tokens);
      }
    }
    this->scatter(s, x, used_bytes, 0, state);
    this->scatter(s, x, sizeof(float), state_bytes(), lengths);
  }

 private:
  [[nodiscard]] std::size_t state_bytes() const noexcept {
    return c_.tokens * c_.hidden * sizeof(float);
  }

  void normalise(stream& s, float* x, std::size_t rows, const std::string& name) {
    this->ops_.layer_norm(s, x, this->parameter(name + ".gain"), this->parameter(name + ".bias"),
                          rows, c_.hidden);
  }

  void layer(stream& s, const std::string& name, float* state, const float* lengths, std::size_t n,
             std::size_t tokens) {
    const std::size_t hidden = c_.hidden, heads = c_.heads, inner = c_.inner;
    const std::size_t head_size = hidden / heads;
    const float scale = 1 / std::sqrt(static_cast<float>(head_size));
    const head_shape shape{n, tokens, heads, head_size};
    float* wide = this->at(wide_);
    float* merged = this->at(merged_);
    this->dense(s, state, wide, n * tokens, hidden, 3 * hidden, name + ".qkv", activation::none);
    this->ops_.split_heads(s, wide, this->at(q_), this->at(k_), this->at(v_), shape);
    this->ops_.gemm(s, {.transpose_b = true,
                        .m = tokens,
                        .n = tokens,
                        .k = head_size,
                        .alpha = scale,
                        .a = this->at(q_),
                        .lda = head_size,
                        .b = this->at(k_),
                        .ldb = head_size,
                        .c = this->at(scores_),
                        .ldc = tokens,
                        .batches = n * heads,
                        .stride_a = tokens * head_size,
                        .stride_b = tokens * head_size,
                        .stride_c = tokens * tokens});
    this->ops_.masked_softmax(s, this->at(scores_), lengths, shape);
    this->ops_.gemm(s, {.m = tokens,
                        .n = head_size,
                        .k = tokens,
                        .a = this->at(scores_),
                        .lda = tokens,
                        .b = this->at(v_),
                        .ldb = head_size,
                        .c = this->at(q_),
                        .ldc = head_size,
                        .batches = n * heads,
                        .stride_a = tokens * tokens,
                        .stride_b = tokens * head_size,
                        .stride_c = tokens * head_size});
    this->ops_.merge_heads(s, this->at(q_), merged, shape);
    this->dense(s, merged, this->at(k_), n * tokens, hidden, hidden, name + ".projection",
                activation::none);
    this->ops_.add_activation(s, state, this->at(k_), n * tokens * hidden, activation::none);
    normalise(s, state, n * tokens, name + ".norm1");
    this->dense(s, state, wide, n * tokens, hidden, inner, name + ".up", activation::gelu);
    this->dense(s, wide, merged, n * tokens, inner, hidden, name + ".down", activation::none);
    this->ops_.add_activation(s, state, merged, n * tokens * hidden, activation::none);
    normalise(s, state, n * tokens, name + ".norm2");
  }

  encoder_config c_;
  typename Ops::buffer state_, lengths_, wide_, q_, k_, v_, scores_, merged_, out_;
};

}  // namespace cohort::models
