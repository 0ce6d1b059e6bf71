// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace cohort::llm {
namespace {

using nlohmann::json;

class reader {
 public:
  reader(const json& object, const std::string& origin) : object_{object}, origin_{origin} {}

  [[noreturn]] void fail(std::string_view name, std::string_view expected) const {
    const auto at = object_.find(std::string{name});
    throw config_error{fmt::format("{}: {}: {} is not allowed: expected {}", origin_, name,
                                   at == object_.end() ? "nothing" : at->dump().substr(0, 60),
                                   expected)};
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
  [[nodiscard]] double number(std::string_view name, double otherwise) const {
    if (!has(name)) return otherwise;
    const json& value = object_.at(std::string{name});
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      fail(name, "a number above 0");
    }
    return value.get<double>();
  }
  [[nodiscard]] bool boolean(std::string_view name, bool otherwise) const {
    if (!has(name)) return otherwise;
    const json& value = object_.at(std::string{name});
    if (!value.is_boolean()) fail(name, "true or false");
    return value.get<bool>();
  }

 private:
  const json& object_;
  const std::string& origin_;
};

constexpr std::size_t most = 1U << 20U;

void read_stretch(const json& document, const std::string& origin, llama_config& c) {
  const auto at = document.find("rope_scaling");
  if (at == document.end() || at->is_null()) return;
  if (!at->is_object()) throw config_error{origin + ": rope_scaling: expected an object"};
  const reader r{*at, origin};
  json type = at->value("rope_type", at->value("type", json{}));
  if (type == "default") return;
  if (type != "llama3") r.fail("rope_type", "default or llama3");
  c.stretch.on = true;
  c.stretch.factor = r.number("factor", 8);
  c.stretch.low_frequency = r.number("low_freq_factor", 1);
  c.stretch.high_frequency = r.number("high_freq_factor", 4);
  c.stretch.original_positions = r.number("original_max_position_embeddings", 8192);
  if (c.stretch.high_frequency <= c.stretch.low_frequency) {
    r.fail("high_freq_factor", "more than low_freq_factor");
  }
}

}  // namespace

std::size_t llama_config::parameters() const noexcept {
  const std::size_t block =
      2 * hidden * q_width() + 2 * hidden * kv_width() + 3 * hidden * ffn + 2 * hidden;
  return vocabulary * hidden * (tied ? 1 : 2) + layers * block + hidden;
}

llama_config parse_config(std::string_view text, const std::string& origin) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) throw config_error{origin + ": not a JSON object"};
  const reader r{document, origin};
  if (r.has("model_type") && document["model_type"] != "llama") r.fail("model_type", "\"llama\"");
  if (r.has("hidden_act") && document["hidden_act"] != "silu") r.fail("hidden_act", "\"silu\"");
  if (r.boolean("attention_bias", false)) r.fail("attention_bias", "false");
  if (r.boolean("mlp_bias", false)) r.fail("mlp_bias", "false");
  llama_config c;
  c.layers = r.integer("num_hidden_layers", 1, 1000);
  c.hidden = r.integer("hidden_size", 1, most);
  c.heads = r.integer("num_attention_heads", 1, 4096);
  c.kv_heads = r.integer("num_key_value_heads", 1, c.heads, c.heads);
  if (c.heads % c.kv_heads != 0) r.fail("num_key_value_heads", "a divisor of num_attention_heads");
  if (!r.has("head_dim") && c.hidden % c.heads != 0) {
    r.fail("hidden_size", "a multiple of num_attention_heads");
  }
  c.head_size = r.integer("head_dim", 2, 1024, c.hidden / c.heads);
  if (c.head_size % 2 != 0) r.fail("head_dim", "an even number");
  c.ffn = r.integer("intermediate_size", 1, most);
  c.vocabulary = r.integer("vocab_size", 1, 1U << 24U);
  c.max_positions = r.integer("max_position_embeddings", 2, 1U << 24U);
  c.norm_epsilon = r.number("rms_norm_eps", 1e-5);
  c.rope_theta = r.number("rope_theta", 10000);
  c.tied = r.boolean("tie_word_embeddings", false);
  read_stretch(document, origin, c);
  c.begin_token = static_cast<std::int32_t>(r.integer("bos_token_id", 0, c.vocabulary - 1, 0));
  if (!r.has("bos_token_id")) c.begin_token = -1;
  c.end_tokens.clear();
  if (r.has("eos_token_id")) {
    const json& ids = document["eos_token_id"];
    for (const json& id : ids.is_array() ? ids : json::array({ids})) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= c.vocabulary) {
        r.fail("eos_token_id", "tokens of the vocabulary");
      }
      c.end_tokens.push_back(id.get<std::int32_t>());
    }
  }
  return c;
}

std::string write_config(const llama_config& c) {
  json out = {{"architectures", {"LlamaForCausalLM"}},
              {"model_type", "llama"},
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
  if (c.stretch.on) {
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

}  // namespace cohort::llm
