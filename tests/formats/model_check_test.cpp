// SPDX-License-Identifier: Apache-2.0
#include <formats/model_check.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::formats::model_check_test {
namespace {
using runtime::data_type;
using runtime::tensor_info;
using shape = std::vector<std::int64_t>;

model_facts image() {
  return {.file = "m/1/model.onnx",
          .interface = {.name = "m",
                        .inputs = {{.name = "x", .type = data_type::f32, .shape = {784}}},
                        .outputs = {{.name = "y", .type = data_type::f32, .shape = {10}},
                                    {.name = "z", .type = data_type::i64, .shape = {}}}},
          .has_batch = true};
}
model_facts tokens() {
  return {.file = "m/1/model.onnx",
          .interface = {.name = "m",
                        .inputs = {{.name = "ids", .type = data_type::i64, .shape = {-1}},
                                   {.name = "mask", .type = data_type::i64, .shape = {-1}}},
                        .outputs = {{.name = "y", .type = data_type::f32, .shape = {-1, 8}}}},
          .has_batch = true};
}
model_facts no_batch() {
  model_facts f = image();
  f.has_batch = false;
  return f;
}

checked_model check(std::string_view text, const model_facts& facts = image()) {
  return check_model("m/config.pbtxt", parse_model_config("m/config.pbtxt", text), facts);
}
test::gist complaint(std::string_view text, const model_facts& facts = image()) {
  try {
    (void)check(text, facts);
  } catch (const input_error& e) {
    const std::string what = e.what();
    CHECK(what.find('\n') == std::string::npos);
    REQUIRE(what.starts_with("m/config.pbtxt: "));
    return test::gist{what.substr(16)};
  }
  return test::gist{"none"};
}

TEST_CASE("without a config the model's metadata suffice") {
  const checked_model m = check_model("m/config.pbtxt", std::nullopt, image());
  CHECK(m.batches);
  CHECK(m.config.name == "m");
  CHECK(m.config.max_batch_size == 16);
  CHECK(m.config.inputs == std::vector<config_tensor>{{"x", data_type::f32, {784}}});
  CHECK(m.config.outputs ==
        std::vector<config_tensor>{{"y", data_type::f32, {10}}, {"z", data_type::i64, {}}});
  CHECK(m.interface.name == "m");
  CHECK(m.interface.inputs == image().interface.inputs);
  CHECK(m.interface.outputs == image().interface.outputs);
  CHECK(m.interface.max_size == 1);
}
TEST_CASE("a model without a batch dimension serves whole tensors") {
  const checked_model m = check_model("m/config.pbtxt", std::nullopt, no_batch());
  CHECK_FALSE(m.batches);
  CHECK(m.config.max_batch_size == 0);
  CHECK(m.interface.inputs.at(0).shape == shape{784});
  CHECK(complaint("max_batch_size: 1", no_batch()) == "max_batch_size: bad value");
}
TEST_CASE("a batch is at most what the model takes") {
  model_facts f = image();
  f.batch_limit = 8;
  CHECK(check_model("m/config.pbtxt", std::nullopt, f).config.max_batch_size == 8);
  CHECK(check("", f).most_rows == 8);
  CHECK(check("max_batch_size: 8", f).config.max_batch_size == 8);
  CHECK(complaint("max_batch_size: 9", f) == "max_batch_size: bad value");
  CHECK(check("max_batch_size: 4096").config.max_batch_size == 4096);
}
TEST_CASE("with a batch size of 0 the batch dimension is the request's") {
  const checked_model m = check(
      "max_batch_size: 0 parameters { key: 'max_length' value { "
      "string_value: '32' } }");
  CHECK(m.batches);
  CHECK(m.most_rows == 32);
  CHECK(m.interface.inputs.at(0).shape == shape{784});
  CHECK(m.interface.max_size == 1);
  CHECK(m.config.inputs.at(0).dims == shape{-1, 784});
  CHECK(m.config.outputs.at(1).dims == shape{-1});
  CHECK(m.config.max_batch_size == 0);
  CHECK(check("").config.max_batch_size == 0);
  CHECK(check("input { name: 'x' dims: [-1, 784] }").interface.inputs.at(0).shape == shape{784});
  CHECK(check("input { name: 'x' dims: [3, 784] }").most_rows == 3);
  CHECK(complaint("max_batch_size: 0 input { name: 'x' dims: 784 }") == "input[0].dims: bad value");
  CHECK(complaint("input { name: 'x' dims: [0, 784] }") == "input[0].dims[0]: bad value");
  // Beside another open dimension, too, which max_length is then of.
  const checked_model t = check(
      "input { name: 'ids' dims: [-1, -1] } input { name: 'mask' }"
      "parameters { key: 'max_length' value { string_value: '32' } }",
      tokens());
  CHECK(t.interface.max_size == 32);
  CHECK(t.interface.inputs == tokens().interface.inputs);
  CHECK(t.config.inputs.at(1).dims == shape{-1, -1});
}
TEST_CASE("open requests are batched where the config says so, else each runs alone") {
  model_facts f = image();
  f.is_open = true;
  CHECK(check("max_batch_size: 8", f).runs_alone);
  CHECK(check("max_batch_size: 8", f).batches);
  CHECK(check("max_batch_size: 8", f).most_rows == 8);
  CHECK_FALSE(check("max_batch_size: 8 dynamic_batching { }", f).runs_alone);
  CHECK(check("max_batch_size: 8 dynamic_batching { }", f).most_rows == 8);
  CHECK(check("dynamic_batching { }", f).runs_alone);
  CHECK_FALSE(check("max_batch_size: 8").runs_alone);  // It has rows.
  CHECK_FALSE(check("", no_batch()).runs_alone);
}
TEST_CASE("the config's name comes before the model's own") {
  const checked_model m = check("name: 'other'");
  CHECK(m.config.name == "other");
  CHECK(m.interface.name == "other");
}
TEST_CASE("what a tensor's entry leaves out is the model's") {
  const checked_model m = check("max_batch_size: 4 input { name: 'x' } output { name: 'z' }");
  CHECK(m.config.inputs == std::vector<config_tensor>{{"x", data_type::f32, {784}}});
  CHECK(m.config.outputs == std::vector<config_tensor>{{"z", data_type::i64, {}}});
}
TEST_CASE("outputs that the config does not name are not served") {
  const checked_model m = check("output { name: 'z' }");
  REQUIRE(m.interface.outputs.size() == 1);
  CHECK(m.interface.outputs.at(0).name == "z");
}
TEST_CASE("an output's length may be left open where the model has one, an input's not") {
  const checked_model m = check("max_batch_size: 4 output { name: 'y' dims: -1 }");
  CHECK(m.interface.outputs.at(0).shape == shape{10});
  CHECK(m.config.outputs.at(0).dims == shape{-1});
  CHECK(check("output { name: 'y' dims: [-1, -1] }").interface.outputs.at(0).shape == shape{10});
}
TEST_CASE("clients may give and get tensors in another shape than the model's") {
  const checked_model m = check(
      "max_batch_size: 4 input { name: 'x' dims: [28, 28] reshape { shape: 784 } }"
      "output { name: 'z' dims: 1 reshape { shape: [ ] } } output { name: 'y' }");
  CHECK(m.client_inputs == std::vector<shape>{{28, 28}});
  CHECK(m.client_outputs == std::vector<shape>{{10}, {1}});
  CHECK(m.interface.inputs == image().interface.inputs);
  CHECK(m.interface.outputs == image().interface.outputs);
  CHECK(m.batches);
  CHECK(complaint(
            "max_batch_size: 4 input { name: 'x' dims: [28, 28] reshape { shape: [1, 784] } }") ==
        "input[0].reshape.shape: bad value");
  // Without a batch dimension: that of the model is 1, if it has one.
  const std::string one = "input { name: 'x' dims: [28, 28] reshape { shape: [1, 784] } }";
  const checked_model whole = check(one);
  CHECK_FALSE(whole.batches);
  CHECK(whole.most_rows == 1);
  CHECK(whole.client_inputs == std::vector<shape>{{28, 28}});
  CHECK(whole.client_outputs == std::vector<shape>{{1, 10}, {1}});
  CHECK(complaint("input { name: 'x' dims: [56, 28] reshape { shape: [2, 784] } }") ==
        "input[0].reshape.shape: bad value");
  model_facts fixed = no_batch();
  fixed.interface.inputs.at(0).shape = {1, 784};
  CHECK(check(one, fixed).client_inputs == std::vector<shape>{{28, 28}});
  CHECK(check(one, fixed).client_outputs == std::vector<shape>{{10}, {}});
}
TEST_CASE("tensors stay in the model's order") {
  const checked_model m = check("output { name: 'z' } output { name: 'y' }");
  CHECK(m.interface.outputs == image().interface.outputs);
}
TEST_CASE("names, types and shapes that disagree are named with both") {
  struct {
    std::string text;
    std::string expected;
  } const wrong[] = {
      {"input { name: 'q' }", "input[0].name: bad value"},
      {"output { name: 'y' } output { name: 'x' }", "output[1].name: bad value"},
      {"input { name: 'x' data_type: TYPE_FP16 }", "input[0].data_type: bad value"},
      {"input { name: 'x' dims: [28, 28] }", "input[0].dims: bad value"},
      {"input { name: 'x' dims: -1 }", "input[0].dims: bad value"},
      {"max_batch_size: 4 output { name: 'z' dims: 1 }", "output[0].dims: bad value"},
  };
  for (const auto& w : wrong) {
    CAPTURE(w.text);
    CHECK(complaint(w.text) == w.expected);
  }
  CHECK(complaint("input { name: 'ids' }", tokens()) == "input: missing");
}
TEST_CASE("a length is at most what the config, the model or the default says, in this order") {
  const std::string longest = "parameters { key: 'max_length' value { string_value: '64' } }";
  CHECK(check("", tokens()).interface.max_size == 512);
  CHECK(check(longest, tokens()).interface.max_size == 64);
  model_facts f = tokens();
  f.interface.max_size = 128;
  CHECK(check("", f).interface.max_size == 128);
  CHECK(check(longest, f).interface.max_size == 64);
  CHECK(complaint("max_batch_size: 4 " + longest) == "parameters[\"max_length\"]: bad value");
}
TEST_CASE("a config may fix the model's lengths, in all tensors") {
  const std::string fixed =
      "max_batch_size: 4 input { name: 'ids' dims: 16 } input { name: 'mask' dims: 16 }";
  const checked_model m = check(fixed + " output { name: 'y' dims: [16, 8] }", tokens());
  CHECK(m.interface.max_size == 1);
  CHECK(m.interface.inputs.at(1).shape == shape{16});
  CHECK(m.interface.outputs.at(0).shape == shape{16, 8});
  CHECK(complaint(fixed, tokens()) == "... output \"y\" ... [-1, 8] ... dims ... -1 ...");
}
TEST_CASE("a model whose rows would be too large is refused by its own name") {
  model_facts f = image();
  f.interface.inputs.at(0).shape = {std::int64_t{1} << 40U};
  try {
    (void)check("", f);
    FAIL("accepted");
  } catch (const input_error& e) {
    CHECK(test::gist(e.what()).starts_with("m/1/model.onnx: tensor 'x': "));
  }
  f = image();
  f.interface.outputs.at(0).shape = {-1};
  CHECK(test::gist_of<input_error>([&] { (void)check_model("m/config.pbtxt", std::nullopt, f); }) ==
        "m/1/model.onnx: bad value");
}
TEST_CASE("preferred batches are at most the largest") {
  CHECK(
      check("max_batch_size: 16 dynamic_batching { preferred_batch_size: [16] }").config.batching);
  CHECK(complaint("max_batch_size: 16 dynamic_batching { preferred_batch_size: [4, 17] }") ==
        "dynamic_batching.preferred_batch_size: bad value");
  CHECK(complaint("dynamic_batching { preferred_batch_size: 1 }", no_batch()) ==
        "dynamic_batching.preferred_batch_size: bad value");
  CHECK(test::gist{check("dynamic_batching {}", no_batch()).config.ignored} ==
        "m/config.pbtxt: dynamic_batching ... ignored ... max_batch_size ... 0");
}
TEST_CASE("a warm-up is a request that the model takes") {
  const auto warmup = [](const std::string& ids, const std::string& mask,
                         const std::string& more = "") {
    return "max_batch_size: 16 model_warmup { " + more +
           " inputs { key: 'ids' value { data_type: TYPE_INT64 dims: " + ids +
           " zero_data: true } } inputs { key: 'mask' value { data_type: TYPE_INT64 dims: " + mask +
           " random_data: true } } }";
  };
  CHECK(check(warmup("9", "9", "batch_size: 16"), tokens()).config.warmups.size() == 1);
  CHECK(complaint(warmup("9", "8"), tokens()) ==
        "model_warmup[0].inputs[\"mask\"].dims: bad value");
  CHECK(complaint(warmup("513", "513"), tokens()) ==
        "model_warmup[0].inputs[\"ids\"].dims: bad value");
  CHECK(complaint(warmup("[9, 1]", "9"), tokens())
            .starts_with("model_warmup[0].inputs[\"ids\"].dims: bad value"));
  CHECK(complaint(warmup("9", "9", "batch_size: 17"), tokens()) ==
        "model_warmup[0].batch_size: bad value");
  CHECK(complaint("model_warmup {}") == "model_warmup[0].inputs: missing");
  const std::string whole =
      "model_warmup { inputs { key: 'x' value { data_type: TYPE_FP32 zero_data: true dims: ";
  CHECK(check(whole + "[2, 784] } } }").config.warmups.size() == 1);
  CHECK(complaint(whole + "784 } } }").starts_with("model_warmup[0].inputs[\"x\"].dims"));
  CHECK(complaint(whole + "[4097, 784] } } }").starts_with("model_warmup[0].inputs[\"x\"].dims"));
  CHECK(
      complaint("model_warmup { inputs { key: 'q' value { data_type: TYPE_FP32 zero_data: true } } "
                "}") == "model_warmup[0].inputs.key: bad value");
  CHECK(complaint("model_warmup { inputs { key: 'x' value { data_type: TYPE_INT8 dims: [1, 784] "
                  "zero_data: true } } }") == "model_warmup[0].inputs[\"x\"].data_type: bad value");
}

}  // namespace
}  // namespace cohort::formats::model_check_test
