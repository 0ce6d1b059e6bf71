// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small ONNX models that the tests make themselves: weights from a fixed seed, so that equal calls
/// give equal models.
#pragma once

#include <formats/onnx_graph.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::test {

/// 32 floats to 10: two layers and a softmax. x [batch, 32] -> y [batch, 10].
[[nodiscard]] formats::onnx_model mlp();
/// Two convolutions with pooling. image [batch, 1, 28, 28] -> logits [batch, 10].
[[nodiscard]] formats::onnx_model convolutions();

inline constexpr std::int64_t encoder_words = 64;  ///< Ids 1 to 63; 0 is padding.
inline constexpr std::int64_t encoder_longest = 128;
/// A transformer encoder of two layers: ids INT64 [batch, length] -> tokens [batch, length, 8]. Ids
/// of 0 are masked, so that zeros behind a text change its tokens by rounding alone.
[[nodiscard]] formats::onnx_model encoder();
/// The same with a mask of its own and a second output: ids, attention_mask -> tokens, and pooled
/// [batch, 4], the mean of what is not masked.
[[nodiscard]] formats::onnx_model masked_encoder();

/// a FP32 [batch, 3], b INT32 [batch, 5] -> sum FP32 [batch, 3]: each of a, and the sum of b;
/// positive BOOL [batch, 5]: whether each of b is above 0.
[[nodiscard]] formats::onnx_model two_by_two();
/// x [batch, 32] -> early [batch, 10] after the first half, late [batch, 10] after all.
[[nodiscard]] formats::onnx_model with_exit();
/// x [6, 4] -> y [6, 5]: one request, no batch.
[[nodiscard]] formats::onnx_model without_batch();

/// A model with its first constant in a file beside it, below 128 bytes of name.
/// @param weights Set to what that file is to hold.
[[nodiscard]] formats::onnx_model with_external(formats::onnx_model m, const std::string& location,
                                                std::string& weights);
/// x [batch, 1] -> y [batch, 4096]: x and the sum of one constant, 4096 times `value`. ONNX Runtime
/// reads that constant at each run.
[[nodiscard]] formats::onnx_model plus(float value);

/// x [batch, 4] -> y [batch, 4]: x as it is after dynamic quantisation, by the least and the
/// largest element of the whole batch.
[[nodiscard]] formats::onnx_model quantised();
/// x [length, 4] -> y [1, 4]: the sum of its rows. The file leaves the first length of y open.
[[nodiscard]] formats::onnx_model sum_of_rows();
/// x [batch, 4] -> y [batch, 4]: its sines of sines, as often as the largest x says.
[[nodiscard]] formats::onnx_model looping();
/// The same, without an end whatever x is.
[[nodiscard]] formats::onnx_model endless();
/// x [batch, 1] -> y [batch, 1]: itself, and a number that takes ONNX Runtime many minutes to
/// compute when it opens the model, whatever it is asked meanwhile.
[[nodiscard]] formats::onnx_model stuck();
/// x [batch, length] -> y [batch, length]: itself, by way of pairs. Odd lengths fail.
[[nodiscard]] formats::onnx_model in_pairs();

/// x [batch, 2, height, width] -> y [batch, 2, half the height, half the width]: the largest of
/// each four, and second [batch, 2, height], what is at width 1: images of width 1 fail.
[[nodiscard]] formats::onnx_model pooled();
/// audio [batch, samples], state [2, batch, 3], rate INT64 [] -> level [batch, 1], the sum of the
/// samples, and next [2, batch, 3], the state and the rate.
[[nodiscard]] formats::onnx_model recurrent();
/// ids INT64 [batch, height, width] -> y of that shape: of -10 to -7 one of 1.5 to 4.5. Zeros fail.
[[nodiscard]] formats::onnx_model from_minus_ten();

/// x, start, end, total FP32 [batch, 1], id INT64 [batch, 1] -> y [batch, 5]: x and total, start,
/// end, id, total; next [batch, 1]: x and total. x of -2 fails.
[[nodiscard]] formats::onnx_model running_total();

/// x [batch, 4] -> y [batch, 4], its absolute values, and places INT64 [2, count], where it is not
/// 0.
[[nodiscard]] formats::onnx_model with_count();

/// text BYTES [batch, words], end BYTES [] -> joined BYTES [batch, words], each of text and the end
/// behind it; text itself; and spelt BYTES [2], "7" and "8".
[[nodiscard]] formats::onnx_model strings();
/// text BYTES [count] -> y FP32 [count]: numbers as they are spelt. Empty strings fail.
[[nodiscard]] formats::onnx_model spelt_numbers();

/// x, before [batch, 3] -> y [batch, 3], their sum; and x itself.
[[nodiscard]] formats::onnx_model with_last();

/// All but the last sixteen.
[[nodiscard]] std::vector<formats::onnx_model> all_onnx_models();

/// Makes graphs. Each function returns the name of what it adds.
class onnx_builder {
 public:
  explicit onnx_builder(std::string name, std::uint64_t seed = 1);

  using declared = std::vector<formats::onnx_dimension>;
  std::string input(std::string name, runtime::data_type type, declared shape);
  void output(std::string name, runtime::data_type type, declared shape);
  /// Weights drawn evenly from −scale to scale.
  std::string weights(std::vector<std::int64_t> dims, float scale);
  std::string constant(std::vector<std::int64_t> dims, std::vector<float> values);
  std::string integers(std::vector<std::int64_t> dims, std::vector<std::int64_t> values);
  std::string node(std::string op, std::vector<std::string> inputs,
                   std::vector<formats::onnx_attribute> attributes = {}, std::string output = {});
  [[nodiscard]] formats::onnx_model done() const { return model_; }
  [[nodiscard]] formats::onnx_model& model() { return model_; }

 private:
  std::string next(std::string_view kind);
  std::string add(std::vector<std::int64_t> dims, runtime::data_type type, std::string data);

  formats::onnx_model model_;
  std::uint64_t state_;
  int named_ = 0;
};

}  // namespace cohort::test
