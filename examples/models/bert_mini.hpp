// SPDX-License-Identifier: Apache-2.0
/// @file
/// A transformer encoder in the shape of BERT-mini: 64 token ids to a vector of 256.
#pragma once

#include <string>
#include <string_view>

#include "model.hpp"

namespace cohort::models {

/// Hidden size 256, 4 layers, 4 heads, inner size 1024, vocabulary 4096, at most 64 tokens. Token 0
/// is padding; attention ignores what follows the last token that is not 0. Stages: embedding; one
/// for each layer; pooling (a dense layer with tanh over the first token). Between stages a row
/// holds the hidden states and, behind them, the sequence's length.
template <ops Ops>
class bert_mini : public model_base<Ops> {
  using base = model_base<Ops>;

 public:
  using typename base::parameters;
  using typename base::stream;
  static constexpr std::size_t hidden = 256, layers = 4, heads = 4, inner = 1024;
  static constexpr std::size_t vocabulary = 4096, tokens = 64;

  static model_info info() {
    return {"bert_mini",
            {"input_ids", "INT32", {std::int64_t{tokens}}},
            {"pooled", "FP32", {std::int64_t{hidden}}}};
  }
  static std::vector<tensor_spec> tensors() {
    std::vector<tensor_spec> t;
    t.push_back({"embedding.token", {vocabulary, hidden}, 1.0F});
    t.push_back({"embedding.position", {tokens, hidden}, 0.2F});
    add_norm(t, "embedding.norm");
    for (std::size_t l = 0; l < layers; ++l) {
      const std::string name = layer_name(l);
      add_dense(t, name + ".qkv", 3 * hidden, hidden);
      add_dense(t, name + ".projection", hidden, hidden);
      add_norm(t, name + ".norm1");
      add_dense(t, name + ".up", inner, hidden);
      add_dense(t, name + ".down", hidden, inner);
      add_norm(t, name + ".norm2");
    }
    add_dense(t, "pooler", hidden, hidden);
    return t;
  }

  bert_mini(Ops o, parameters weights, std::uint32_t max_batch)
      : base{o, std::move(weights), max_batch},
        state_{this->work_space(tokens * hidden)},
        lengths_{this->work_space(1)},
        wide_{this->work_space(tokens * inner)},
        q_{this->work_space(tokens * hidden)},
        k_{this->work_space(tokens * hidden)},
        v_{this->work_space(tokens * hidden)},
        scores_{this->work_space(heads * tokens * tokens)},
        merged_{this->work_space(tokens * hidden)},
        out_{this->work_space(hidden)} {}

  [[nodiscard]] std::string_view name() const noexcept { return "bert_mini"; }
  [[nodiscard]] std::size_t stages() const noexcept { return layers + 2; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const noexcept {
    if (i == 0) return tokens * sizeof(std::int32_t);
    return i == stages() ? hidden * sizeof(float) : state_bytes + sizeof(float);
  }

  void enqueue(std::size_t stage, stream& s, const runtime::slice& x) {
    this->check(x);
    const std::size_t n = x.count;
    float* state = this->at(state_);
    float* lengths = this->at(lengths_);
    if (stage == 0) {
      const float* ids = this->gather(s, x, boundary_bytes(0), 0, q_);
      this->ops_.embed(s, reinterpret_cast<const std::int32_t*>(ids),
                       this->parameter("embedding.token"), this->parameter("embedding.position"),
                       state, lengths, n, tokens, hidden, vocabulary);
      normalise(s, state, n * tokens, "embedding.norm");
    } else {
      this->gather(s, x, state_bytes, 0, state_);
      if (stage == stages() - 1) {
        // The first token of each sequence: rows of `hidden`, a state apart.
        this->ops_.copy(s, {.destination = merged_.data(),
                            .source = state,
                            .row_bytes = hidden * sizeof(float),
                            .rows = n,
                            .destination_pitch = hidden * sizeof(float),
                            .source_pitch = state_bytes});
        float* out = this->target(x, boundary_bytes(stages()), out_);
        this->dense(s, this->at(merged_), out, n, hidden, hidden, "pooler", activation::tanh);
        this->scatter(s, x, boundary_bytes(stages()), 0, out);
        return;
      }
      this->gather(s, x, sizeof(float), state_bytes, lengths_);
      layer(s, layer_name(stage - 1), state, lengths, n);
    }
    this->scatter(s, x, state_bytes, 0, state);
    this->scatter(s, x, sizeof(float), state_bytes, lengths);
  }

 private:
  static constexpr std::size_t state_bytes = tokens * hidden * sizeof(float);

  static std::string layer_name(std::size_t l) { return "layer" + std::to_string(l); }
  static void add_norm(std::vector<tensor_spec>& t, const std::string& name) {
    t.push_back({name + ".gain", {hidden}, 0.05F, 1.0F});
    t.push_back({name + ".bias", {hidden}, 0.05F});
  }

  void normalise(stream& s, float* x, std::size_t rows, const std::string& name) {
    this->ops_.layer_norm(s, x, this->parameter(name + ".gain"), this->parameter(name + ".bias"),
                          rows, hidden);
  }

  void layer(stream& s, const std::string& name, float* state, const float* lengths,
             std::size_t n) {
    constexpr std::size_t head_size = hidden / heads;
    const head_shape shape{n, tokens, heads, head_size};
    float* wide = this->at(wide_);
    float* merged = this->at(merged_);
    this->dense(s, state, wide, n * tokens, hidden, 3 * hidden, name + ".qkv", activation::none);
    this->ops_.split_heads(s, wide, this->at(q_), this->at(k_), this->at(v_), shape);
    this->ops_.gemm(s, {.transpose_b = true,
                        .m = tokens,
                        .n = tokens,
                        .k = head_size,
                        .alpha = 0.125F,  // 1 / √head_size.
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

  typename Ops::buffer state_, lengths_, wide_, q_, k_, v_, scores_, merged_, out_;
};

}  // namespace cohort::models
