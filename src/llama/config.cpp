// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace cohort::llama {
namespace {

using nlohmann::json;

class reader {
 public:
  /// @param section Where the object is in its file, with a point behind; empty: the file itself.
  reader(const json& object, std::string origin, std::string section = {})
      : object_{object}, origin_{std::move(origin)}, section_{std::move(section)} {}

  [[noreturn]] void fail(std::string_view name, std::string_view expected) const {
    const auto at = object_.find(std::string{name});
    throw config_error{fmt::format("{}: {}{}: got {}, expected {}", origin_, section_, name,
                                   at == object_.end() ? "nothing" : at->dump().substr(0, 60),
                                   expected)};
  }
  /// Absent, null or this: else the model is another.
  void neutral(std::string_view name, const json& value) const {
    if (has(name) && (*this)[name] != value) fail(name, value.dump() + " or nothing");
  }
  [[nodiscard]] const json& operator[](std::string_view name) const {
    return object_.at(std::string{name});
  }
  [[nodiscard]] bool has(std::string_view name) const {
    const auto at = object_.find(std::string{name});
    return at != object_.end() && !at->is_null();
  }
  [[nodiscard]] std::size_t integer(std::string_view name, std::size_t low,
                                    std::size_t high) const {
    const auto at = object_.find(std::string{name});
    if (at == object_.end() || !at->is_number_integer() || at->get<std::int64_t>() < 0 ||
        at->get<std::uint64_t>() < low || at->get<std::uint64_t>() > high) {
      fail(name, fmt::format("an integer from {} to {}", low, high));
    }
    return at->get<std::size_t>();
  }
  [[nodiscard]] std::size_t integer(std::string_view name, std::size_t low, std::size_t high,
                                    std::size_t otherwise) const {
    return has(name) ? integer(name, low, high) : otherwise;
  }
  [[nodiscard]] double number(std::string_view name) const {
    const auto at = object_.find(std::string{name});
    if (at == object_.end() || !at->is_number() || !(at->get<double>() > 0) ||
        !std::isfinite(at->get<double>())) {
      fail(name, "a number above 0");
    }
    return at->get<double>();
  }
  [[nodiscard]] double number(std::string_view name, double otherwise) const {
    return has(name) ? number(name) : otherwise;
  }
  [[nodiscard]] bool boolean(std::string_view name, bool otherwise) const {
    if (!has(name)) return otherwise;
    const json& value = (*this)[name];
    if (!value.is_boolean()) fail(name, "true or false");
    return value.get<bool>();
  }
  /// One token or a list of them; none if there is nothing.
  [[nodiscard]] std::vector<std::int32_t> tokens(std::string_view name,
                                                 std::size_t vocabulary) const {
    std::vector<std::int32_t> out;
    if (!has(name)) return out;
    const json& ids = (*this)[name];
    for (const json& id : ids.is_array() ? ids : json::array({ids})) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocabulary) {
        fail(name, fmt::format("tokens of the vocabulary, below {}", vocabulary));
      }
      out.push_back(id.get<std::int32_t>());
    }
    return out;
  }
  [[nodiscard]] const json& object() const noexcept { return object_; }
  [[nodiscard]] const std::string& origin() const noexcept { return origin_; }

 private:
  const json& object_;
  std::string origin_;
  std::string section_;
};

constexpr std::size_t most = 1U << 20U;

/// What one place says of rotary positions; what it does not say is left open.
struct rope_claim {
  std::optional<double> theta;
  std::optional<rope_stretch> stretch;
};

/// As transformers compute them.
rope_stretch read_yarn(const reader& r, const reader& config) {
  rope_stretch y{.type = rope_type::yarn, .factor = r.number("factor")};
  if (y.factor < 1) r.fail("factor", "a number of at least 1");
  y.original_positions = r.has("original_max_position_embeddings")
                             ? r.number("original_max_position_embeddings")
                             : config.number("max_position_embeddings");
  y.fast = r.number("beta_fast", y.fast);
  y.slow = r.number("beta_slow", y.slow);
  if (y.fast < y.slow) r.fail("beta_fast", "no less than beta_slow");
  y.truncates = r.boolean("truncate", true);
  const auto growth = [&](double scale) { return 0.1 * scale * std::log(y.factor) + 1; };
  const bool has_both = r.has("mscale") && r.has("mscale_all_dim");
  y.growth = r.number(
      "attention_factor",
      has_both ? growth(r.number("mscale")) / growth(r.number("mscale_all_dim")) : growth(1));
  return y;
}

/// @param name rope_parameters or rope_scaling.
rope_claim read_rope(const reader& config, const char* name) {
  if (!config.has(name)) return {};
  const json& section = config[name];
  if (!section.is_object()) config.fail(name, "an object");
  const reader r{section, config.origin(), fmt::format("{}.", name)};
  rope_claim out;
  r.neutral("partial_rotary_factor", 1);
  if (r.has("rope_theta")) out.theta = r.number("rope_theta");
  const char* key = r.has("rope_type") || !r.has("type") ? "rope_type" : "type";
  constexpr const char* allowed = "\"default\", \"linear\", \"llama3\" or \"yarn\"";
  if (!r.has(key)) {
    // Without a type there is nothing that it could mean but these.
    for (const auto& [other, value] : section.items()) {
      if (other != "rope_theta" && other != "partial_rotary_factor" && !value.is_null()) {
        r.fail(key, fmt::format("{}, beside {}", allowed,
                                json(other).dump(-1, ' ', /*ensure_ascii=*/true).substr(0, 60)));
      }
    }
    return out;
  }
  if (r.has("type") && r["type"] != r[key]) r.fail("type", "the same as rope_type");
  const json& type = r[key];
  if (type == "default" || (type == "linear" && r.number("factor") == 1)) {
    out.stretch = rope_stretch{};
    return out;
  }
  if (type == "linear") {
    out.stretch = rope_stretch{.type = rope_type::linear, .factor = r.number("factor")};
    return out;
  }
  if (type == "yarn") {
    out.stretch = read_yarn(r, config);
    return out;
  }
  if (type != "llama3") r.fail(key, allowed);
  out.stretch = rope_stretch{.type = rope_type::llama3,
                             .factor = r.number("factor"),
                             .low_frequency = r.number("low_freq_factor"),
                             .high_frequency = r.number("high_freq_factor"),
                             .original_positions = r.number("original_max_position_embeddings")};
  if (out.stretch->high_frequency <= out.stretch->low_frequency) {
    r.fail("high_freq_factor", "more than low_freq_factor");
  }
  return out;
}

/// Since version 5 transformers writes rope_parameters; before, rope_theta and rope_scaling.
void read_ropes(const reader& config, llama_config& c) {
  const rope_claim now = read_rope(config, "rope_parameters");
  const rope_claim before = read_rope(config, "rope_scaling");
  std::optional<double> theta;
  if (config.has("rope_theta")) theta = config.number("rope_theta");
  for (const std::optional<double>& other : {now.theta, before.theta}) {
    if (!other) continue;
    if (theta && *theta != *other) {
      throw config_error{
          fmt::format("{}: rope_theta: {} and {} contradict each other: expected one value",
                      config.origin(), *theta, *other)};
    }
    theta = other;
  }
  if (theta) c.rope_theta = *theta;
  if (now.stretch && before.stretch && *now.stretch != *before.stretch) {
    config.fail("rope_scaling", "the same as in rope_parameters");
  }
  if (now.stretch) {
    c.stretch = *now.stretch;
  } else if (before.stretch) {
    c.stretch = *before.stretch;
  }
  if (c.stretch.type == rope_type::yarn && c.rope_theta <= 1) {
    config.fail("rope_theta", "above 1 with yarn");
  }
}

/// Which of the kin a model is: the Llama, and those that differ in little.
struct kin {
  const char* type;
  const char* architecture;
};
constexpr std::array all_kin{kin{"llama", "LlamaForCausalLM"}, kin{"mistral", "MistralForCausalLM"},
                             kin{"qwen2", "Qwen2ForCausalLM"}, kin{"qwen3", "Qwen3ForCausalLM"}};

std::string_view kin_of(const reader& r) {
  const auto fail = [&](const char* key) {
    std::string known;
    for (const kin& k : all_kin) {
      known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ",
                           key == std::string_view{"model_type"} ? k.type : k.architecture);
    }
    r.fail(key, "one of " + known);
  };
  std::string_view type;
  if (r.has("model_type")) {
    const auto at = std::ranges::find_if(
        all_kin, [&](const kin& k) { return r["model_type"] == json(k.type); });
    if (at == all_kin.end()) fail("model_type");
    type = at->type;
  }
  if (!r.has("architectures")) return type.empty() ? "llama" : type;
  const json& names = r["architectures"];
  if (!names.is_array()) fail("architectures");
  for (const json& name : names) {
    const auto at = std::ranges::find_if(all_kin, [&](const kin& k) {
      return name == json(k.architecture) ||
             (k.type == std::string_view{"llama"} && name == json("LLaMAForCausalLM"));
    });
    if (at == all_kin.end() || (!type.empty() && type != at->type)) fail("architectures");
    type = at->type;
  }
  return type.empty() ? "llama" : type;
}

/// Refuses what is not a Llama as ours, or of its kin. @returns Which it is.
std::string_view check_architecture(const reader& r) {
  const std::string_view of = kin_of(r);
  if (r.has("hidden_act") && r["hidden_act"] != "silu" && r["hidden_act"] != "swish") {
    r.fail("hidden_act", "\"silu\"");
  }
  r.neutral("attention_bias", false);
  r.neutral("mlp_bias", false);
  r.neutral("partial_rotary_factor", 1);
  r.neutral("logit_scale", 1);
  // Where nothing is said, a Mistral has a window and a Qwen has none.
  const bool is_qwen = of == "qwen2" || of == "qwen3";
  const bool says = r.object().contains("sliding_window");
  if ((of == "mistral" && !says) ||
      (r.has("sliding_window") && r.boolean("use_sliding_window", !is_qwen))) {
    r.fail("sliding_window", "null: the whole text is attended to");
  }
  if (r.has("layer_types")) {
    const json& types = r["layer_types"];
    if (!types.is_array() ||
        !std::ranges::all_of(types, [](const json& t) { return t == "full_attention"; })) {
      r.fail("layer_types", "\"full_attention\" for each layer");
    }
  }
  for (const char* quantised : {"quantization_config", "compression_config"}) {
    if (r.has(quantised)) r.fail(quantised, "null: weights in F32, F16 or BF16");
  }
  return of;
}

}  // namespace

std::size_t llama_config::parameters() const noexcept {
  const std::size_t block = 2 * hidden * q_width() + 2 * hidden * kv_width() + 3 * hidden * ffn +
                            2 * hidden + (qkv_bias ? q_width() + 2 * kv_width() : 0) +
                            (qk_norm ? 2 * head_size : 0);
  return vocabulary * hidden * (tied ? 1 : 2) + layers * block + hidden;
}

llama_config parse_config(std::string_view text, const std::string& origin) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) throw config_error{origin + ": not a JSON object"};
  const reader r{document, origin};
  const std::string_view of = check_architecture(r);
  llama_config c;
  c.qkv_bias = of == "qwen2";
  c.qk_norm = of == "qwen3";
  c.layers = r.integer("num_hidden_layers", 1, 1000);
  c.hidden = r.integer("hidden_size", 1, most);
  c.heads = r.integer("num_attention_heads", 1, 4096);
  c.kv_heads = r.integer("num_key_value_heads", 1, c.heads, c.heads);
  if (c.heads % c.kv_heads != 0) r.fail("num_key_value_heads", "a divisor of num_attention_heads");
  if (!r.has("head_dim") && !c.qk_norm && c.hidden % c.heads != 0) {
    r.fail("hidden_size", "a multiple of num_attention_heads");
  }
  c.head_size = r.integer("head_dim", 2, 1024, c.qk_norm ? 128 : c.hidden / c.heads);
  if (c.head_size % 2 != 0) r.fail("head_dim", "an even number");
  c.ffn = r.integer("intermediate_size", 1, most);
  c.vocabulary = r.integer("vocab_size", 1, 1U << 24U);
  c.max_positions = r.integer("max_position_embeddings", 2, 1U << 24U);
  c.norm_epsilon = r.number("rms_norm_eps", 1e-5);
  c.tied = r.boolean("tie_word_embeddings", false);
  read_ropes(r, c);
  if (c.stretch.type == rope_type::yarn) {  // The config may still say how many there were before.
    const double stretched = c.stretch.original_positions * c.stretch.factor;
    c.max_positions =
        std::max(c.max_positions, static_cast<std::size_t>(std::min(stretched, 0x1p24)));
  }
  c.begin_token = static_cast<std::int32_t>(r.integer("bos_token_id", 0, c.vocabulary - 1, 0));
  if (!r.has("bos_token_id")) c.begin_token = -1;
  c.end_tokens = r.tokens("eos_token_id", c.vocabulary);
  return c;
}

void read_generation_config(std::string_view text, const std::string& origin, llama_config& c) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) throw config_error{origin + ": not a JSON object"};
  const reader r{document, origin};
  std::vector<std::int32_t> ends = r.tokens("eos_token_id", c.vocabulary);
  if (!ends.empty()) c.end_tokens = std::move(ends);
}

llama_config served_config(llama_config c, std::uint64_t kv_bytes, std::size_t element_bytes) {
  const std::uint64_t columns = kv_bytes / (c.column_bytes() / sizeof(float) * element_bytes);
  // Nothing runs with fewer than two positions.
  c.max_positions = std::min<std::uint64_t>(
      c.max_positions, std::max<std::uint64_t>(1, std::min(columns, std::uint64_t{1} << 31U)) + 1);
  return c;
}

std::string write_config(const llama_config& c) {
  const kin& of = all_kin[c.qk_norm ? 3 : c.qkv_bias ? 2 : 0];
  json out = {{"architectures", {of.architecture}},
              {"model_type", of.type},
              {"hidden_act", "silu"},
              {"num_hidden_layers", c.layers},
              {"hidden_size", c.hidden},
              {"num_attention_heads", c.heads},
              {"num_key_value_heads", c.kv_heads},
              {"head_dim", c.head_size},
              {"intermediate_size", c.ffn},
              {"vocab_size", c.vocabulary},
              {"max_position_embeddings", c.max_positions},
              {"rms_norm_eps", c.norm_epsilon},
              {"rope_theta", c.rope_theta},
              {"tie_word_embeddings", c.tied},
              {"attention_bias", false},
              {"mlp_bias", false},
              {"torch_dtype", "float32"},
              {"eos_token_id", c.end_tokens}};
  if (c.begin_token >= 0) out["bos_token_id"] = c.begin_token;
  if (c.stretch.type == rope_type::linear) {
    out["rope_scaling"] = {{"rope_type", "linear"}, {"factor", c.stretch.factor}};
  } else if (c.stretch.type == rope_type::yarn) {
    out["rope_scaling"] = {{"rope_type", "yarn"},
                           {"factor", c.stretch.factor},
                           {"original_max_position_embeddings", c.stretch.original_positions},
                           {"beta_fast", c.stretch.fast},
                           {"beta_slow", c.stretch.slow},
                           {"attention_factor", c.stretch.growth},
                           {"truncate", c.stretch.truncates}};
  } else if (c.stretch.type == rope_type::llama3) {
    out["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", c.stretch.factor},
                           {"low_freq_factor", c.stretch.low_frequency},
                           {"high_freq_factor", c.stretch.high_frequency},
                           {"original_max_position_embeddings", c.stretch.original_positions}};
  }
  return out.dump(2) + "\n";
}

llama_config named_config(std::string_view name) {
  llama_config c;
  if (name == "tiny") return c;
  c.head_size = 64;
  if (name == "small") {  // 7 M parameters.
    c.layers = 6;
    c.hidden = 320;
    c.heads = 5;
    c.kv_heads = 5;
    c.ffn = 896;
  } else if (name == "medium") {  // 42 M.
    c.layers = 12;
    c.hidden = 576;
    c.heads = 9;
    c.kv_heads = 3;
    c.ffn = 1536;
    c.max_positions = 4096;
  } else if (name == "large") {  // 0.7 G.
    c.layers = 22;
    c.hidden = 1536;
    c.heads = 24;
    c.kv_heads = 8;
    c.ffn = 4608;
    c.max_positions = 8192;
  } else {
    throw config_error{
        fmt::format("model {}: expected tiny, small, medium or large", std::string{name})};
  }
  return c;
}

}  // namespace cohort::llama
