// SPDX-License-Identifier: Apache-2.0
#include <formats/model_config.hpp>

#include <doctest/doctest.h>
#include <formats/model_json.hpp>
#include <formats/text.hpp>
#include <support/complaint.hpp>
#include <support/scratch_file.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::formats::model_config_test {
namespace {
using namespace std::chrono_literals;
using runtime::data_type;

model_config parse(std::string_view text) { return parse_model_config("m/config.pbtxt", text); }
std::string complaint(std::string_view text) {
  try {
    (void)parse(text);
  } catch (const input_error& e) {
    const std::string what = test::gist(e.what());
    CHECK(what.find('\n') == std::string::npos);
    CHECK(what.size() < 500);
    REQUIRE(what.starts_with("m/config.pbtxt: "));
    return what.substr(16);
  }
  return "none";
}
std::string repeat(std::string_view text, std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += text;
  return out;
}
std::string parameter(const std::string& key, const std::string& value) {
  return "parameters { key: \"" + key + "\" value { string_value: \"" + value + "\" } }";
}
std::string warmup(const std::string& input) {
  return "model_warmup { inputs { key: \"x\" value { " + input + " } } }";
}

/// What a field does: of a field that is used, a text and how it is seen in the config.
struct use_case {
  std::string text;
  std::function<bool(const model_config&)> seen{};
};
using cases = std::map<std::string, use_case>;
using names = std::vector<std::pair<std::string, std::string>>;

const cases& used() {
  static const cases all{
      {"name", {"name: 'net'", [](const auto& c) { return c.name == "net"; }}},
      {"platform",
       {"platform: 'onnxruntime_onnx'",
        [](const auto&) {
          return complaint("platform: 'tensorrt_plan'") == "platform: bad value";
        }}},
      {"backend",
       {"backend: 'onnxruntime'",
        [](const auto&) { return complaint("backend: 'python'") == "backend: bad value"; }}},
      {"version_policy.latest.num_versions",
       {"version_policy { latest { num_versions: 3 } }",
        [](const auto& c) {
          return c.versions.which == version_policy::choice::latest && c.versions.latest == 3;
        }}},
      {"version_policy.all",
       {"version_policy: { all: {} }",
        [](const auto& c) { return c.versions.which == version_policy::choice::all; }}},
      {"version_policy.specific.versions",
       {"version_policy { specific { versions: [7, 2, 7] } }",
        [](const auto& c) {
          return c.versions.which == version_policy::choice::specific &&
                 c.versions.specific == std::vector<std::uint64_t>{2, 7};
        }}},
      {"max_batch_size",
       {"max_batch_size: 0", [](const auto& c) { return c.max_batch_size == 0; }}},
      {"input.name",
       {"input { name: 'x' }", [](const auto& c) { return c.inputs.at(0).name == "x"; }}},
      {"input.data_type",
       {"input { name: 'x' data_type: TYPE_INT64 }",
        [](const auto& c) {
          return c.inputs.at(0).type == data_type::i64 &&
                 parse("input { name: 'x' data_type: TYPE_STRING }").inputs.at(0).type ==
                     data_type::bytes;
        }}},
      {"input.dims",
       {"input { name: 'x' dims: [ -1, 3 ] }",
        [](const auto& c) { return c.inputs.at(0).dims == std::vector<std::int64_t>{-1, 3}; }}},
      {"input.reshape.shape",
       {"input { name: 'x' dims: 1 reshape { shape: [ ] } }",
        [](const auto& c) {
          return c.inputs.at(0).reshape == std::vector<std::int64_t>{} &&
                 complaint("input { name: 'x' dims: 2 reshape { shape: 3 } }") ==
                     "input[0].reshape.shape: bad value" &&
                 complaint("input { name: 'x' dims: -1 reshape { shape: [ ] } }") ==
                     "input[0].reshape.shape: bad value" &&
                 complaint("input { name: 'x' reshape { shape: [ ] } }") ==
                     "input[0].reshape.shape: bad value" &&
                 complaint("input { name: 'x' dims: 1 reshape { shape: -1 } }") ==
                     "input[0].reshape.shape[0]: bad value";
        }}},
      {"output.reshape.shape",
       {"output { name: 'y' dims: 6 reshape: { shape: [2, 3] } }",
        [](const auto& c) { return c.outputs.at(0).reshape == std::vector<std::int64_t>{2, 3}; }}},
      {"output.name",
       {"output { name: 'y' }", [](const auto& c) { return c.outputs.at(0).name == "y"; }}},
      {"output.data_type",
       {"output { name: 'y' data_type: TYPE_BOOL }",
        [](const auto& c) { return c.outputs.at(0).type == data_type::boolean; }}},
      {"output.dims",
       {"output { name: 'y' dims: 10 }",
        [](const auto& c) { return c.outputs.at(0).dims == std::vector<std::int64_t>{10}; }}},
      {"instance_group.name",
       {"instance_group { name: 'g' }",
        [](const auto& c) { return c.instances.at(0).name == "g"; }}},
      {"instance_group.count",
       {"instance_group { count: 2 }", [](const auto& c) { return c.instances.at(0).count == 2; }}},
      {"instance_group.kind",
       {"instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU }, {} ]",
        [](const auto& c) {
          return c.instances.at(0).kind == instance_kind::cpu &&
                 c.instances.at(1).kind == instance_kind::gpu &&
                 c.instances.at(2).kind == instance_kind::automatic;
        }}},
      {"default_model_filename",
       {"default_model_filename: 'onnx/net.onnx'",
        [](const auto& c) { return c.file == "onnx/net.onnx"; }}},
      {"dynamic_batching.preferred_batch_size",
       {"dynamic_batching { preferred_batch_size: [8, 4, 8] }",
        [](const auto& c) { return c.batching->preferred == std::vector<std::uint32_t>{4, 8}; }}},
      {"dynamic_batching.max_queue_delay_microseconds",
       {"dynamic_batching { max_queue_delay_microseconds: 1500 }",
        [](const auto& c) { return c.batching->max_queue_delay == 1500us; }}},
      {"dynamic_batching.default_queue_policy.timeout_action",
       {"dynamic_batching { default_queue_policy { timeout_action: DELAY "
        "default_timeout_microseconds: 1500 } }",
        [](const auto& c) { return c.queue_timeout() == 0us; }}},
      {"dynamic_batching.default_queue_policy.default_timeout_microseconds",
       {"dynamic_batching { default_queue_policy { default_timeout_microseconds: 1500 } }",
        [](const auto& c) { return c.queue_timeout() == 1500us; }}},
      {"dynamic_batching.default_queue_policy.max_queue_size",
       {"dynamic_batching { default_queue_policy { max_queue_size: 64 } }",
        [](const auto& c) { return c.queue_size() == 64; }}},
      {"parameters.string_value",
       {parameter("slo_ms", "50"), [](const auto& c) { return c.slo == 50ms; }}},
      {"model_warmup.name",
       {"model_warmup { name: 'w' }", [](const auto& c) { return c.warmups.at(0).name == "w"; }}},
      {"model_warmup.batch_size",
       {"model_warmup { batch_size: 4 }",
        [](const auto& c) { return c.warmups.at(0).batch_size == 4; }}},
      {"model_warmup.inputs.data_type",
       {warmup("data_type: TYPE_FP16 zero_data: true"),
        [](const auto& c) { return c.warmups.at(0).inputs.at(0).tensor.type == data_type::f16; }}},
      {"model_warmup.inputs.dims",
       {warmup("data_type: TYPE_FP32 dims: [2, 3] zero_data: true"),
        [](const auto& c) {
          const runtime::tensor_info& t = c.warmups.at(0).inputs.at(0).tensor;
          return t.name == "x" && t.shape == std::vector<std::int64_t>{2, 3};
        }}},
      {"sequence_batching.max_sequence_idle_microseconds",
       {"sequence_batching { max_sequence_idle_microseconds: 2500 }",
        [](const auto& c) { return c.sequences->idle == 2500us; }}},
      {"sequence_batching.control_input.name",
       {"sequence_batching { control_input { name: 's' control { int32_false_true: [0, 1] } } }",
        [](const auto& c) { return c.sequences->controls.at(0).name == "s"; }}},
      {"sequence_batching.control_input.control.kind",
       {"sequence_batching { control_input { name: 's' control { kind: CONTROL_SEQUENCE_END "
        "int32_false_true: [0, 1] } } }",
        [](const auto& c) { return c.sequences->controls.at(0).what == sequence_control::end; }}},
      {"sequence_batching.control_input.control.int32_false_true",
       {"sequence_batching { control_input { name: 's' control { int32_false_true: [2, 3] } } }",
        [](const auto& c) {
          return c.sequences->controls.at(0).type == data_type::i32 &&
                 c.sequences->controls.at(0).no == 2 && c.sequences->controls.at(0).yes == 3;
        }}},
      {"sequence_batching.control_input.control.fp32_false_true",
       {"sequence_batching { control_input { name: 's' control { fp32_false_true: [0.5, 3] } } }",
        [](const auto& c) {
          return c.sequences->controls.at(0).type == data_type::f32 &&
                 c.sequences->controls.at(0).no == 0.5 && c.sequences->controls.at(0).yes == 3;
        }}},
      {"sequence_batching.control_input.control.data_type",
       {"sequence_batching { control_input { name: 's' control { kind: CONTROL_SEQUENCE_CORRID "
        "data_type: TYPE_UINT64 } } }",
        [](const auto& c) {
          return c.sequences->controls.at(0).what == sequence_control::id &&
                 c.sequences->controls.at(0).type == data_type::u64;
        }}},
      {"sequence_batching.control_input.control.bool_false_true",
       {"sequence_batching { control_input { name: 's' control { bool_false_true: [false, true] } "
        "} }",
        [](const auto& c) {
          return c.sequences->controls.at(0).type == data_type::boolean &&
                 c.sequences->controls.at(0).no == 0 && c.sequences->controls.at(0).yes == 1;
        }}},
      {"sequence_batching.state.input_name",
       {"sequence_batching { state { input_name: 'a' output_name: 'b'  } }",
        [](const auto& c) { return c.sequences->states.at(0).input == "a"; }}},
      {"sequence_batching.state.output_name",
       {"sequence_batching { state { input_name: 'a' output_name: 'b'  } }",
        [](const auto& c) { return c.sequences->states.at(0).output == "b"; }}},
      {"sequence_batching.state.data_type",
       {"sequence_batching { state { input_name: 'a' output_name: 'b' data_type: TYPE_FP16 } }",
        [](const auto& c) { return c.sequences->states.at(0).type == data_type::f16; }}},
      {"sequence_batching.state.dims",
       {"sequence_batching { state { input_name: 'a' output_name: 'b' dims: [-1, 3] } }",
        [](const auto& c) {
          return c.sequences->states.at(0).dims == std::vector<std::int64_t>{-1, 3};
        }}},
      {"sequence_batching.state.initial_state.data_type",
       {"sequence_batching { state { input_name: 'a' output_name: 'b' data_type: TYPE_FP16 "
        "initial_state { data_type: TYPE_FP16 zero_data: true } } }",
        [](const auto& c) { return c.sequences->states.at(0).type == data_type::f16; }}},
      {"sequence_batching.state.initial_state.dims",
       {"sequence_batching { state { input_name: 'a' output_name: 'b' dims: -1 initial_state { "
        "dims: 4 zero_data: true } } }",
        [](const auto& c) {
          return c.sequences->states.at(0).first == std::vector<std::int64_t>{4};
        }}},
      {"sequence_batching.state.initial_state.zero_data",
       {"sequence_batching { state { input_name: 'a' output_name: 'b' initial_state { zero_data: "
        "false } } }",
        [](const auto& c) { return c.sequences->states.at(0).first.empty(); }}},
      {"sequence_batching.state.initial_state.name",
       {"sequence_batching { state { input_name: 'a' output_name: 'b' initial_state { name: "
        "'zeros' zero_data: true } } }",
        [](const auto& c) { return c.sequences->states.at(0).first.empty(); }}},
      {"ensemble_scheduling.step.model_name",
       {"platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' } }",
        [](const auto& c) { return c.steps.at(0).model == "a"; }}},
      {"ensemble_scheduling.step.model_version",
       {"platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' model_version: 3 } "
        "step { model_name: 'a' model_version: -1 } }",
        [](const auto& c) { return c.steps.at(0).version == 3 && c.steps.at(1).version == -1; }}},
      {"ensemble_scheduling.step.input_map",
       {"platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' input_map { key: 'x' "
        "value: 't' } input_map { key: 'y' value: 't' } } }",
        [](const auto& c) { return c.steps.at(0).inputs == names{{"x", "t"}, {"y", "t"}}; }}},
      {"ensemble_scheduling.step.output_map",
       {"platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' output_map { key: 'x' "
        "value: 't' } } }",
        [](const auto& c) { return c.steps.at(0).outputs == names{{"x", "t"}}; }}},
      {"output.label_filename",
       {"output { name: 'y' label_filename: 'labels.txt' }",
        [](const auto& c) { return c.outputs.at(0).label_file == "labels.txt"; }}},
      {"model_warmup.inputs.zero_data",
       {warmup("data_type: TYPE_FP32 zero_data: false"),
        [](const auto& c) { return !c.warmups.at(0).inputs.at(0).random; }}},
      {"model_warmup.inputs.random_data",
       {warmup("data_type: TYPE_FP32 random_data: true"),
        [](const auto& c) { return c.warmups.at(0).inputs.at(0).random; }}},
      {"response_cache.enable",
       {"response_cache { enable: true }",
        [](const auto& c) {
          return c.response_cache && !parse("response_cache { enable: false }").response_cache &&
                 complaint("sequence_batching { } response_cache { enable: true }") ==
                     "response_cache.enable: bad value";
        }}},
      {"model_warmup.count",
       {"model_warmup { count: 3 }", [](const auto& c) { return c.warmups.at(0).count == 3; }}},
  };
  return all;
}

/// A text that sets the field, to other than its default.
const std::map<std::string, std::string>& others() {
  static const std::map<std::string, std::string> all{
      {"input.format", "input { name: 'x' format: FORMAT_NCHW }"},
      {"input.is_shape_tensor", "input { name: 'x' is_shape_tensor: true }"},
      {"input.allow_ragged_batch", "input { name: 'x' allow_ragged_batch: true }"},
      {"input.optional", "input { name: 'x' optional: true }"},
      {"input.is_non_linear_format_io", "input { name: 'x' is_non_linear_format_io: true }"},
      {"output.is_shape_tensor", "output { name: 'y' is_shape_tensor: true }"},
      {"output.is_non_linear_format_io", "output { name: 'y' is_non_linear_format_io: true }"},
      {"instance_group.gpus", "instance_group { gpus: [ 0, 1 ] }"},
      {"instance_group.profile", "instance_group { profile: '0' }"},
      {"instance_group.rate_limiter",
       "instance_group { rate_limiter { resources [ { name: 'r' count: 2 } ] priority: 1 } }"},
      {"instance_group.passive", "instance_group { passive: true }"},
      {"instance_group.secondary_devices",
       "instance_group { secondary_devices { kind: KIND_NVDLA device_id: 0 } }"},
      {"instance_group.host_policy", "instance_group { host_policy: 'numa_0' }"},
      {"cc_model_filenames", "cc_model_filenames { key: '8.0' value: 'a.onnx' }"},
      {"metric_tags", "metric_tags { key: 'team' value: 'a' }"},
      {"dynamic_batching.preserve_ordering", "dynamic_batching { preserve_ordering: true }"},
      {"dynamic_batching.priority_levels", "dynamic_batching { priority_levels: 2 }"},
      {"dynamic_batching.default_priority_level", "dynamic_batching { default_priority_level: 1 }"},
      {"dynamic_batching.default_queue_policy.allow_timeout_override",
       "dynamic_batching { default_queue_policy { allow_timeout_override: true } }"},
      {"dynamic_batching.priority_queue_policy",
       "dynamic_batching { priority_queue_policy { key: 1 value { max_queue_size: 4 } } }"},
      {"sequence_batching.direct.max_queue_delay_microseconds",
       "sequence_batching { direct { max_queue_delay_microseconds: 5 } }"},
      {"sequence_batching.direct.minimum_slot_utilization",
       "sequence_batching { direct { minimum_slot_utilization: 0.5 } }"},
      {"sequence_batching.oldest.max_candidate_sequences",
       "sequence_batching { oldest { max_candidate_sequences: 4 } }"},
      {"sequence_batching.oldest.preferred_batch_size",
       "sequence_batching { oldest { preferred_batch_size: 4 } }"},
      {"sequence_batching.oldest.max_queue_delay_microseconds",
       "sequence_batching { oldest { max_queue_delay_microseconds: 5 } }"},
      {"sequence_batching.oldest.preserve_ordering",
       "sequence_batching { oldest { preserve_ordering: true } }"},
      {"sequence_batching.state.initial_state.data_file",
       "sequence_batching { state { input_name: 'a' output_name: 'b' initial_state { data_file: "
       "'f' } } }"},
      {"sequence_batching.state.use_same_buffer_for_input_output",
       "sequence_batching { state { input_name: 'a' output_name: 'b' "
       "use_same_buffer_for_input_output: true } }"},
      {"sequence_batching.state.use_growable_memory",
       "sequence_batching { state { input_name: 'a' output_name: 'b' use_growable_memory: true } "
       "}"},
      {"sequence_batching.iterative_sequence", "sequence_batching { iterative_sequence: true }"},
      {"ensemble_scheduling.step.model_namespace",
       "platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' model_namespace: 'n' } "
       "}"},
      {"ensemble_scheduling.max_inflight_requests",
       "platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' } "
       "max_inflight_requests: 4 }"},
      {"optimization.graph.level", "optimization { graph { level: 1 } }"},
      {"optimization.priority", "optimization { priority: PRIORITY_MAX }"},
      {"optimization.cuda", "optimization { cuda { graphs: true } }"},
      {"optimization.execution_accelerators",
       "optimization { execution_accelerators { gpu_execution_accelerator: [ { name: 'tensorrt' } "
       "] } }"},
      {"optimization.input_pinned_memory", "optimization { input_pinned_memory { enable: true } }"},
      {"optimization.output_pinned_memory",
       "optimization { output_pinned_memory { enable: false } }"},
      {"optimization.gather_kernel_buffer_threshold",
       "optimization { gather_kernel_buffer_threshold: 4 }"},
      {"optimization.eager_batching", "optimization { eager_batching: true }"},
      {"model_warmup.inputs.input_data_file",
       warmup("data_type: TYPE_FP32 input_data_file: 'raw'")},
      {"model_operations.op_library_filename",
       "model_operations { op_library_filename: 'libops.so' }"},
      {"model_transaction_policy.decoupled", "model_transaction_policy { decoupled: true }"},
      {"batch_input", "batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'n' }"},
      {"batch_output", "batch_output { target_name: 'y' }"},
      {"model_repository_agents.agents", "model_repository_agents { agents { name: 'checksum' } }"},
      {"runtime", "runtime: 'libtriton_mine.so'"},
      {"model_metrics",
       "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { "
       "buckets: [ 0.1, 1 ] } } }"},
  };
  return all;
}

std::string without_indices(std::string_view place) {
  std::string out;
  bool inside = false;
  for (const char c : place) {
    if (c == '[') inside = true;
    if (!inside) out += c;
    if (c == ']') inside = false;
  }
  return out;
}

/// Rows of a table of docs/migrate.md: the cells of each, from the line after its head on.
std::vector<std::vector<std::string>> rows_of(const std::string& head) {
  const std::string page = test::slurp(COHORT_MIGRATE_PAGE);
  std::size_t at = page.find("\n" + head + "\n");
  REQUIRE(at != std::string::npos);
  at = page.find('\n', page.find('\n', at + 1) + 1) + 1;
  std::vector<std::vector<std::string>> out;
  while (page[at] == '|') {
    const std::size_t end = page.find('\n', at);
    std::vector<std::string> cells;
    std::size_t from = at + 2;
    for (std::size_t to = page.find(" |", from); to < end; to = page.find(" |", from)) {
      cells.push_back(page.substr(from, to - from));
      from = to + 3;
    }
    out.push_back(cells);
    at = end + 1;
  }
  return out;
}

TEST_CASE(
    "every row of the page is a field of the schema, in its order, and says what becomes of it") {
  const std::vector<field_rule> rules = field_rules();
  const auto rows = rows_of("| field | here | meaning, or why not |");
  REQUIRE(rows.size() == rules.size());
  for (std::size_t i = 0; i < rules.size(); ++i) {
    CAPTURE(rules[i].field);
    REQUIRE(rows[i].size() == 3);
    CHECK(rows[i][0] == "`" + rules[i].field + "`");
    const bool used = rules[i].use == field_use::used;
    CHECK(rows[i][1] == (used                                 ? "used"
                         : rules[i].use == field_use::refused ? "refused"
                                                              : "ignored"));
    if (!used) CHECK(rows[i][2] == rules[i].why);
    CHECK_FALSE(rows[i][2].empty());
  }
}
TEST_CASE("every field does what its row says") {
  for (const field_rule& r : field_rules()) {
    CAPTURE(r.field);
    if (r.use == field_use::used) {
      REQUIRE(used().contains(r.field));
      const use_case& c = used().at(r.field);
      const model_config m = parse(c.text);
      CHECK(c.seen(m));
      CHECK(m.ignored.empty());
      continue;
    }
    REQUIRE(others().contains(r.field));
    const std::string& text = others().at(r.field);
    if (r.use == field_use::refused) {
      const std::string what = complaint(text);
      const std::string ends = " is refused: " + r.why;
      REQUIRE(what.ends_with(ends));
      CHECK(without_indices(what.substr(0, what.size() - ends.size())) == r.field);
    } else {
      CHECK(parse(text).ignored ==
            std::vector<std::string>{"m/config.pbtxt: " + r.field + " is ignored: " + r.why});
    }
  }
}
TEST_CASE("every parameter of the page is known, and no other") {
  const auto rows = rows_of("| key | value | meaning |");
  const auto names = parameter_names();
  REQUIRE(rows.size() == names.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i][0] == "`" + std::string{names[i]} + "`");
  }
}

TEST_CASE("a config may be JSON, as clients get and send it") {
  const model_config c = parse_model_config_json("m", R"( {"name":"m","max_batch_size":8,
      "input":[{"name":"x","data_type":"TYPE_FP32","dims":["3",-1]}],
      "dynamic_batching":{"preferred_batch_size":[4]},
      "parameters":{"slo_ms":{"string_value":"12.5"}},
      "model_warmup":[{"name":"w","batch_size":2,
                       "inputs":{"x":{"data_type":"TYPE_FP32","dims":[3,2],"zero_data":true}}}]})");
  CHECK(c.max_batch_size == 8);
  CHECK(c.inputs.at(0).dims == std::vector<std::int64_t>{3, -1});
  CHECK(c.batching->preferred == std::vector<std::uint32_t>{4});
  CHECK(c.slo == 12500us);
  CHECK(c.warmups.at(0).inputs.at(0).tensor.name == "x");
  const auto wrong = [](const std::string& text) {
    return test::gist_of<input_error>(
        [&] { static_cast<void>(parse_model_config_json("m", text)); });
  };
  CHECK(wrong(R"({"max_batch_size":-1})") == "m: max_batch_size: ... -1 ... 0 to 4096");
  CHECK(wrong(R"({"max_batch_sise":1})").find("max_batch_sise") != std::string::npos);
  CHECK(wrong("{") == "m: not valid JSON");
  CHECK(wrong("{\"input\":" + std::string(100'000, '[')) == "m: ... deeper ... 32 levels");
}
TEST_CASE("what is shown of a config is one") {
  model_config c = parse(
      "name: 'm' max_batch_size: 4 input { name: 'x' data_type: TYPE_FP32 dims: 3 } "
      "parameters { key: 'slo_ms' value { string_value: '50' } } sequence_batching { control_input "
      "{ name: 's' control { bool_false_true: [false, true] } } state { input_name: 'a' "
      "output_name: 'b' data_type: TYPE_FP32 dims: 2 } }");
  const model_config again = parse_model_config_json("m", to_json(c));
  CHECK(to_json(again) == to_json(c));
  CHECK(again.slo == c.slo);
  CHECK(again.sequences->states.at(0).dims == std::vector<std::int64_t>{2});
}

TEST_CASE("an empty config leaves all to the model") {
  const model_config c = parse("");
  CHECK(c.name.empty());
  CHECK_FALSE(c.max_batch_size);
  CHECK(c.inputs.empty());
  CHECK(c.outputs.empty());
  CHECK_FALSE(c.batching);
  CHECK(c.instances.empty());
  CHECK(c.versions.which == version_policy::choice::latest);
  CHECK(c.versions.latest == 1);
  CHECK(c.warmups.empty());
  CHECK(c.file == "model.onnx");
  CHECK_FALSE(c.slo);
  CHECK_FALSE(c.max_length);
  CHECK(c.padding == padding_rule::none);
  CHECK_FALSE(c.memory_bytes);
  CHECK(c.ignored.empty());
}
TEST_CASE("a config as they are written is read") {
  const model_config c = parse(R"(
    # Comments are allowed.
    name: "encoder"
    backend: "onnxruntime"
    max_batch_size: 32
    input [
      { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] },
      { name: "mask", data_type: TYPE_INT64, dims: -1 }
    ]
    output: { name: "scores", data_type: TYPE_FP32, dims: [ 2 ] }
    dynamic_batching { preferred_batch_size: [ 8, 16 ] max_queue_delay_microseconds: 100 }
    instance_group [ { count: 2, kind: KIND_CPU } ]
    version_policy: { latest: { num_versions: 2 } };
    parameters: { key: "slo_ms" value: { string_value: "12.5" } }
    parameters: { key: "max_length" value: { string_value: "128" } }
    parameters: { key: "padding" value: { string_value: "zeros" } }
    parameters: { key: "memory_mb" value: { string_value: "1.5" } }
  )");
  CHECK(c.name == "encoder");
  CHECK(c.max_batch_size == 32);
  CHECK(c.inputs ==
        std::vector<config_tensor>{{"ids", data_type::i64, {-1}}, {"mask", data_type::i64, {-1}}});
  CHECK(c.outputs == std::vector<config_tensor>{{"scores", data_type::f32, {2}}});
  CHECK(c.batching->preferred == std::vector<std::uint32_t>{8, 16});
  CHECK(c.batching->max_queue_delay == 100us);
  CHECK(c.slo == 12500us);
  CHECK(c.max_length == 128);
  CHECK(c.padding == padding_rule::zeros);
  CHECK(c.memory_bytes == 1'500'000);
  CHECK(c.parameters.at("slo_ms") == "12.5");
  CHECK(c.ignored.empty());
}
TEST_CASE("what is refused or ignored may have its default") {
  const model_config c = parse(
      "input { name: 'x' optional: false format: FORMAT_NONE allow_ragged_batch: false } "
      "model_transaction_policy { decoupled: false } response_cache { enable: false } "
      "dynamic_batching { preserve_ordering: false priority_levels: 0 default_queue_policy { "
      "timeout_action: REJECT } } runtime: ''");
  CHECK(c.ignored.empty());
  CHECK(c.batching);
}
TEST_CASE("a field that is ignored several times is said once") {
  CHECK(parse("input { name: 'x' format: FORMAT_NHWC } input { name: 'y' format: FORMAT_NCHW }")
            .ignored.size() == 1);
}
TEST_CASE("an unknown parameter is ignored by its name") {
  CHECK(parse(parameter("slo", "3")).ignored ==
        std::vector<std::string>{"m/config.pbtxt: parameters[\"slo\"] is ignored: known are "
                                 "slo_ms, max_length, padding, memory_mb"});
}
TEST_CASE("the place of an element is in the complaint") {
  CHECK(complaint("input { name: 'x' } input { name: 'y' is_shape_tensor: true }") ==
        "input[1].is_shape_tensor is refused: ONNX models have no shape tensors");
}

TEST_CASE("what is not in the format is named by line and column") {
  struct {
    std::string text;
    std::string expected;
  } const wrong[] = {
      {"name: 'm'\n  max_batchsize: 4",
       "line 2, column 3: Message type \"ModelConfig\" has no field named \"max_batchsize\""},
      {"input {\n\tname: 'x'\n\tdim : 3\n}",
       "line 3, column 2: Message type \"ModelInput\" has no field named \"dim\""},
      {"foo { bar: 1 }",
       "line 1, column 1: Message type \"ModelConfig\" has no field named \"foo\""},
      {"max_batch_size: eight", "line 1, column 17: Expected integer, got: eight"},
      {"max_batch_size: 'eight'", "line 1, column 17: Expected integer, got: 'eight'"},
      {"max_batch_size: 99999999999999999999",
       "line 1, column 17: Integer out of range (99999999999999999999)"},
      {"max_batch_size 8", "line 1, column 16: Expected \":\", found \"8\""},
      {"max_batch_size:", "line 1, column 16: Expected integer, got: the end of the text"},
      {"input [ { name: 'x' }", "line 1, column 22: Expected \",\", found \"\""},
      {"input { name: 'x'", "line 1, column 18: Expected identifier, got: the end of the text"},
      {"name: 'm", "line 1, column 9: Unexpected end of string"},
      {"name: \"a\nb\"", "line 1, column 9: String literals cannot cross line boundaries"},
      {"}", "line 1, column 1: Expected identifier, got: }"},
      {"input { name: 'x' data_type: FP32 }",
       "line 1, column 30: Unknown enumeration value of \"FP32\" for field \"data_type\""},
      {"instance_group { kind: KIND_TPU }",
       "line 1, column 24: Unknown enumeration value of \"KIND_TPU\" for field \"kind\""},
  };
  for (const auto& w : wrong) {
    CAPTURE(w.text);
    CHECK(complaint(w.text) == w.expected);
  }
  CHECK(complaint("max_batch_size: 1 max_batch_size: 2").find("specified multiple times") !=
        std::string::npos);
  CHECK(complaint("dynamic_batching {} sequence_batching {}").find("another member of oneof") !=
        std::string::npos);
  CHECK(complaint("version_policy { all {} latest {} }").find("another member of oneof") !=
        std::string::npos);
  CHECK(complaint("{\"name\": \"m\"}").starts_with("line 1, column "));
  CHECK(complaint(std::string_view{"name: 'm'\0", 10}).starts_with("line 1, column "));
  CHECK(complaint("\xFF\xFE").starts_with("line 1, column "));
  CHECK(complaint("[cohort.foo]: 1").starts_with("line 1, column "));
}
TEST_CASE("values out of range are named by their field") {
  struct {
    std::string text;
    std::string expected;
  } const wrong[] = {
      {"max_batch_size: -1", "max_batch_size: bad value"},
      {"max_batch_size: 4097", "max_batch_size: bad value"},
      {"name: '../up'", "name: bad value"},
      {"platform: 'ensemble'", "platform: bad value"},
      {"ensemble_scheduling { step { model_name: 'a' } }", "platform: bad value"},
      {"platform: 'ensemble' ensemble_scheduling {}", "ensemble_scheduling.step: bad value"},
      {"platform: 'ensemble' ensemble_scheduling { step {} }",
       "ensemble_scheduling.step[0].model_name: bad value"},
      {"platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' model_version: 0 } }",
       "ensemble_scheduling.step[0].model_version: bad value"},
      {"platform: 'ensemble' ensemble_scheduling { step { model_name: 'a' input_map { key: 'x' "
       "value: 'y' } input_map { key: 'x' value: 'z' } } }",
       "ensemble_scheduling.step[0].input_map.key: bad value"},
      {"default_model_filename: 'a/../../b'", "default_model_filename: bad value"},
      {"default_model_filename: '..'", "default_model_filename: bad value"},
      {"default_model_filename: '/a'", "default_model_filename: bad value"},
      {"default_model_filename: 'a//b'", "default_model_filename: bad value"},
      {"default_model_filename: 'a/'", "default_model_filename: bad value"},
      {"input {}", "input[0].name: bad value"},
      {"input { name: '" + repeat("x", 257) + "' }", "input[0].name: bad value"},
      {"input { name: '\\xff' }", "input[0].name: bad value"},
      {"instance_group { name: 'a\\nb' }", "instance_group[0].name: bad value"},
      {"output { name: 'y' } output { name: 'y' }", "output[1].name: bad value"},
      {"input { name: 'x' data_type: TYPE_INVALID }", "input[0].data_type: bad value"},
      {"input { name: 'x' dims: [ 3, 0 ] }", "input[0].dims[1]: bad value"},
      {"input { name: 'x' dims: -2 }", "input[0].dims[0]: bad value"},
      {"input { name: 'x' dims: [ 1048576, 1048577 ] }", "input[0].dims[1]: bad value"},
      {"input { name: 'x' dims: [ 9223372036854775807, 2 ] }", "input[0].dims[0]: bad value"},
      {"input { name: 'x' dims: [ " + repeat("1, ", 16) + "1 ] }", "input[0].dims: bad value"},
      {"dynamic_batching { preferred_batch_size: [ 4, 0 ] }",
       "dynamic_batching.preferred_batch_size[1]: bad value"},
      {"dynamic_batching { max_queue_delay_microseconds: 3600000001 }",
       "dynamic_batching.max_queue_delay_microseconds: bad value"},
      {"instance_group { count: 0 }", "instance_group[0].count: bad value"},
      {"instance_group { count: 65 }", "instance_group[0].count: bad value"},
      {"instance_group { kind: KIND_MODEL }", "instance_group[0].kind: bad value"},
      {repeat("instance_group {} ", 17), "instance_group: bad value"},
      {"version_policy { latest { num_versions: 0 } }",
       "version_policy.latest.num_versions: bad value"},
      {"version_policy { specific {} }", "version_policy.specific.versions: bad value"},
      {"version_policy { specific { versions: [ 1, -3 ] } }",
       "version_policy.specific.versions[1]: bad value"},
      {"model_warmup { batch_size: 0 }", "model_warmup[0].batch_size: bad value"},
      {"model_warmup { count: 10001 }", "model_warmup[0].count: bad value"},
      {warmup("data_type: TYPE_FP32"), "model_warmup[0].inputs[\"x\"]: missing"},
      {warmup("zero_data: true"), "model_warmup[0].inputs[\"x\"].data_type: missing"},
      {warmup("data_type: TYPE_FP32 dims: -1 zero_data: true"),
       "model_warmup[0].inputs[\"x\"].dims[0]: bad value"},
      {"model_warmup { inputs { key: 'x' value { data_type: TYPE_FP32 zero_data: true } } inputs { "
       "key: 'x' value { data_type: TYPE_FP32 zero_data: true } } }",
       "model_warmup[0].inputs.key: bad value"},
      {parameter("slo_ms", "0"), "parameters[\"slo_ms\"]: bad value"},
      {parameter("slo_ms", "1e-9"), "parameters[\"slo_ms\"]: bad value"},
      {parameter("slo_ms", "fast"), "parameters[\"slo_ms\"]: bad value"},
      {parameter("max_length", "0"), "parameters[\"max_length\"]: bad value"},
      {parameter("padding", "yes"), "parameters[\"padding\"]: bad value"},
      {parameter("memory_mb", "-4"), "parameters[\"memory_mb\"]: bad value"},
      {parameter("", "1"), "parameters.key: bad value"},
  };
  for (const auto& w : wrong) {
    CAPTURE(w.text);
    CHECK(complaint(w.text) == w.expected);
  }
}
TEST_CASE("of a parameter that is given twice the last one counts, and a note says so") {
  const model_config c = parse(parameter("slo_ms", "5") + parameter("slo_ms", "7"));
  CHECK(c.slo == from_ms(7));
  CHECK(c.parameters.at("slo_ms") == "7");
  CHECK(c.ignored ==
        std::vector<std::string>{
            "m/config.pbtxt: parameters[\"slo_ms\"] is given twice: the last one counts"});
}

TEST_CASE("long, deep and many are refused in one line") {
  CHECK(complaint(std::string(most_config_bytes + 1, ' ')) == "bad value");
  CHECK(parse(std::string(most_config_bytes, ' ')).name.empty());
  const std::size_t deep = 100'000;
  CHECK(complaint("ensemble_scheduling " + repeat("{ a ", deep)).starts_with("line 1, column "));
  CHECK(complaint("model_warmup " + repeat("{ inputs ", deep)).starts_with("line 1, column "));
  CHECK(complaint("input " + repeat("[", deep)).starts_with("line 1, column "));
  CHECK(complaint(repeat("a", most_config_bytes - 10) + ": 1").starts_with("line 1, column "));
  CHECK(complaint(repeat("input{}", 100'000)) == "input: bad value");
  CHECK(complaint("input { name: 'x' dims: [" + repeat("1,", 100'000) + "1] }") ==
        "input[0].dims: bad value");
}
TEST_CASE("names of models are plain") {
  for (const char* good : {"m", "bert_mini", "a.b-C_9", "0"}) CHECK(is_model_name(good));
  for (const char* bad : {"", ".", "..", ".git", "a/b", "a\\b", "a b", "a%2f", "\xC3\xA9", "a\n"}) {
    CHECK_FALSE(is_model_name(bad));
  }
  CHECK(is_model_name(repeat("m", 128)));
  CHECK_FALSE(is_model_name(repeat("m", 129)));
}

}  // namespace
}  // namespace cohort::formats::model_config_test
