// SPDX-License-Identifier: Apache-2.0
#include "weights.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <numbers>
#include <set>
#include <span>
#include <utility>

#include "safetensors.hpp"

namespace cohort::llama {
namespace {

using nlohmann::json;

/// A named tensor, and the part of ours that it is.
struct slot {
  std::string name;
  std::vector<std::size_t> shape;
  float* to;
  float scale;  ///< Standard deviation when drawn; 0: all ones.

  [[nodiscard]] std::size_t count() const {
    std::size_t n = 1;
    for (const std::size_t d : shape) n *= d;
    return n;
  }
};

void allocate(llama_weights& w) {
  const llama_config& c = w.config;
  w.embedding.resize(c.vocabulary * c.hidden);
  w.norm.resize(c.hidden);
  if (!c.tied) w.head.resize(c.vocabulary * c.hidden);
  w.layers.resize(c.layers);
  for (layer_weights& l : w.layers) {
    l.attention_norm.resize(c.hidden);
    l.qkv.resize((c.q_width() + 2 * c.kv_width()) * c.hidden);
    if (c.qkv_bias) l.qkv_bias.resize(c.q_width() + 2 * c.kv_width());
    if (c.qk_norm) {
      l.q_norm.resize(c.head_size);
      l.k_norm.resize(c.head_size);
    }
    l.out.resize(c.hidden * c.q_width());
    l.ffn_norm.resize(c.hidden);
    l.gate_up.resize(2 * c.ffn * c.hidden);
    l.down.resize(c.hidden * c.ffn);
  }
}

/// All tensors, in the order in which they are written.
std::vector<slot> slots_of(llama_weights& w) {
  const llama_config& c = w.config;
  std::vector<slot> out;
  const auto matrix = [&](const std::string& name, std::size_t rows, std::size_t columns, float* to,
                          double gain) {
    out.push_back({name,
                   {rows, columns},
                   to,
                   static_cast<float>(gain / std::sqrt(static_cast<double>(columns)))});
  };
  const auto gain = [&](const std::string& name, std::vector<float>& v) {
    out.push_back({name, {v.size()}, v.data(), 0});
  };
  out.push_back({"model.embed_tokens.weight", {c.vocabulary, c.hidden}, w.embedding.data(), 1});
  for (std::size_t i = 0; i < c.layers; ++i) {
    layer_weights& l = w.layers[i];
    const std::string at = fmt::format("model.layers.{}.", i);
    gain(at + "input_layernorm.weight", l.attention_norm);
    float* qkv = l.qkv.data();
    matrix(at + "self_attn.q_proj.weight", c.q_width(), c.hidden, qkv, 1.5);
    qkv += c.q_width() * c.hidden;
    matrix(at + "self_attn.k_proj.weight", c.kv_width(), c.hidden, qkv, 1.5);
    qkv += c.kv_width() * c.hidden;
    matrix(at + "self_attn.v_proj.weight", c.kv_width(), c.hidden, qkv, 1.5);
    if (c.qkv_bias) {
      float* bias = l.qkv_bias.data();
      for (const char* part : {"q", "k", "v"}) {
        const std::size_t n = *part == 'q' ? c.q_width() : c.kv_width();
        out.push_back({fmt::format("{}self_attn.{}_proj.bias", at, part), {n}, bias, 0.3F});
        bias += n;
      }
    }
    if (c.qk_norm) {
      out.push_back({at + "self_attn.q_norm.weight", {c.head_size}, l.q_norm.data(), 0.5F});
      out.push_back({at + "self_attn.k_norm.weight", {c.head_size}, l.k_norm.data(), 0.5F});
    }
    matrix(at + "self_attn.o_proj.weight", c.hidden, c.q_width(), l.out.data(), 1);
    gain(at + "post_attention_layernorm.weight", l.ffn_norm);
    matrix(at + "mlp.gate_proj.weight", c.ffn, c.hidden, l.gate_up.data(), 1);
    matrix(at + "mlp.up_proj.weight", c.ffn, c.hidden, l.gate_up.data() + c.ffn * c.hidden, 1);
    matrix(at + "mlp.down_proj.weight", c.hidden, c.ffn, l.down.data(), 1);
  }
  gain("model.norm.weight", w.norm);
  if (!c.tied) matrix("lm_head.weight", c.vocabulary, c.hidden, w.head.data(), 2);
  return out;
}

/// SplitMix64.
struct generator {
  std::uint64_t state;
  std::uint64_t next() noexcept {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
  /// Variance 1, from four uniforms: as good as a normal here, and exact everywhere.
  float value() noexcept {
    const std::uint64_t bits = next();
    std::int64_t sum = 0;
    for (unsigned i = 0; i < 4; ++i) {
      sum += static_cast<std::int64_t>((bits >> (16 * i)) & 0xFFFFU) - 32768;
    }
    return static_cast<float>(sum) * (0.8660254F / 32768.0F);
  }
};

std::uint64_t hash(std::string_view name) noexcept {
  std::uint64_t h = 0xCBF29CE484222325ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return h;
}

std::vector<std::string> weight_files(const std::string& directory) {
  const std::string index = directory + "/model.safetensors.index.json";
  std::error_code ignored;
  if (!std::filesystem::exists(index, ignored)) return {directory + "/model.safetensors"};
  std::vector<std::string> out;
  for (const std::string& n : shard_names(read_text(index), index)) {
    out.push_back(fmt::format("{}/{}", directory, n));
  }
  return out;
}

struct stored {
  tensor_view view;
  std::string path;  ///< Of its file.
};
using stored_tensors = std::map<std::string, stored>;

[[noreturn]] void fail_at(const stored& t, std::string_view name, std::string_view what) {
  throw config_error{fmt::format("{}: tensor {}: {}", t.path, shown(name), what)};
}

/// Whether a tensor's name is one of the decoder's, which takes part in its output.
bool is_of_decoder(std::string_view name) {
  // Tables of positions, which follow from the config.
  if (name.find(".rotary_emb.") != std::string_view::npos) return false;
  return name.starts_with("model.") || name.starts_with("lm_head.");
}

/// Ahead of the check of their sizes, which quantised ones would fail for no visible reason.
void check_types(const stored_tensors& tensors) {
  for (const auto& [name, t] : tensors) {
    if (t.view.type != tensor_type::other || !is_of_decoder(name)) continue;
    fail_at(t, name,
            fmt::format("dtype {} is not supported: expected F32, F16 or BF16", t.view.dtype));
  }
}

/// Whether adding it would change nothing.
bool is_zero(const tensor_view& t) {
  std::vector<float> values(t.count());
  return to_f32(t, values.data()) && std::ranges::all_of(values, [](float x) { return x == 0; });
}

/// Tensors of the decoder that ours has no place for would change what it says.
void check_unused(const stored_tensors& tensors, const std::vector<slot>& slots,
                  const llama_config& c) {
  std::set<std::string_view> used;
  for (const slot& s : slots) used.insert(s.name);
  for (const auto& [name, t] : tensors) {
    if (used.contains(name) || !is_of_decoder(name)) continue;
    if (name.ends_with(".bias")) {
      if (!is_zero(t.view)) fail_at(t, name, "biases are not supported: expected none, or zeros");
    } else if (c.tied && name == "lm_head.weight") {
      const auto embedding = tensors.find("model.embed_tokens.weight");
      if (embedding == tensors.end()) continue;  // It is missed later.
      const tensor_view& e = embedding->second.view;
      if (e.type != t.view.type || e.shape != t.view.shape ||
          !std::ranges::equal(e.bytes, t.view.bytes)) {
        fail_at(t, name,
                "differs from model.embed_tokens.weight though tie_word_embeddings is true: "
                "expected none, or an equal one");
      }
    } else {
      fail_at(
          t, name,
          fmt::format("is not supported: such a model of {} layers has no such tensor", c.layers));
    }
  }
}

}  // namespace

std::set<std::string> shard_names(std::string_view text, const std::string& origin) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (!document.is_object() || map == document.end() || !map->is_object() || map->empty()) {
    throw config_error{origin + ": weight_map: expected an object of file names"};
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    // Only names within the folder.
    if (!file.is_string() || file.get<std::string>().empty() ||
        file.get<std::string>().find('/') != std::string::npos ||
        file.get<std::string>().front() == '.') {
      throw config_error{fmt::format("{}: weight_map: {}: expected a file name", origin,
                                     file.dump().substr(0, 60))};
    }
    names.insert(file.get<std::string>());
  }
  return names;
}

std::string read_text(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw config_error{path + ": is not a file"};
  }
  if (std::filesystem::file_size(path, ignored) > (std::uintmax_t{256} << 20U)) {
    throw config_error{path + ": is larger than 256 MiB"};
  }
  std::ifstream file{path, std::ios::binary};
  if (!file) throw config_error{path + ": cannot be read"};
  return {std::istreambuf_iterator<char>{file}, {}};
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream file{path, std::ios::binary};
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.flush();
  if (!file) throw config_error{path + ": cannot be written"};
}

llama_weights random_weights(const llama_config& config, std::uint64_t seed) {
  llama_weights w;
  w.config = config;
  allocate(w);
  for (const slot& s : slots_of(w)) {
    generator g{seed ^ hash(s.name)};
    const std::size_t n = s.count();
    for (std::size_t i = 0; i < n; ++i) s.to[i] = s.scale == 0 ? 1.0F : s.scale * g.value();
  }
  return w;
}

llama_weights load_weights(const std::string& directory) {
  llama_weights w;
  const std::string config = directory + "/config.json";
  w.config = parse_config(read_text(config), config);
  const std::string generating = directory + "/generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generating, ignored)) {
    read_generation_config(read_text(generating), generating, w.config);
  }
  std::vector<mapped_file> files;
  stored_tensors tensors;
  std::size_t bytes = 0;
  for (const std::string& path : weight_files(directory)) {
    files.emplace_back(path);
    bytes += files.back().bytes().size();
    for (auto& [name, view] : read_safetensors(files.back().bytes(), path)) {
      const auto [at, is_new] = tensors.try_emplace(name, stored{std::move(view), path});
      if (!is_new) fail_at({{}, path}, name, fmt::format("is also in {}", at->second.path));
    }
  }
  check_types(tensors);
  // A config may claim any size; its tensors must be there before memory is.
  if (w.config.parameters() > bytes / 2) {
    throw config_error{fmt::format("{}: {} parameters do not fit in the {} bytes of its weights",
                                   config, w.config.parameters(), bytes)};
  }
  allocate(w);
  const std::vector<slot> slots = slots_of(w);
  check_unused(tensors, slots, w.config);
  for (const slot& s : slots) {
    const auto at = tensors.find(s.name);
    if (at == tensors.end()) {
      throw config_error{fmt::format("{}: tensor {} is missing", directory, s.name)};
    }
    const tensor_view& view = at->second.view;
    if (view.shape != s.shape) {
      fail_at(at->second, s.name,
              fmt::format("shape is [{}], expected [{}]", fmt::join(view.shape, ","),
                          fmt::join(s.shape, ",")));
    }
    if (!to_f32(view, s.to)) fail_at(at->second, s.name, "values must be finite");
  }
  return w;
}

void save_weights(const llama_weights& w, const std::string& directory, std::size_t shards) {
  write_text(directory + "/config.json", write_config(w.config));
  auto& mutable_weights = const_cast<llama_weights&>(w);  // Slots point into it; only read here.
  const std::vector<slot> all = slots_of(mutable_weights);
  shards = std::max<std::size_t>(1, std::min(shards, all.size()));
  json map = json::object();
  std::uint64_t total = 0;
  for (std::size_t k = 0; k < shards; ++k) {
    const std::string file = shards == 1
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", k + 1, shards);
    const std::size_t first = k * all.size() / shards;
    const std::size_t last = (k + 1) * all.size() / shards;
    json header = json::object();
    std::uint64_t at = 0;
    for (std::size_t i = first; i < last; ++i) {
      const std::uint64_t end = at + all[i].count() * sizeof(float);
      header[all[i].name] = {
          {"dtype", "F32"}, {"shape", all[i].shape}, {"data_offsets", {at, end}}};
      map[all[i].name] = file;
      at = end;
    }
    total += at;
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t size = text.size();
    const std::string path = fmt::format("{}/{}", directory, file);
    std::ofstream out{path, std::ios::binary};
    out.write(reinterpret_cast<const char*>(&size), sizeof size);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (std::size_t i = first; i < last; ++i) {
      out.write(reinterpret_cast<const char*>(all[i].to),
                static_cast<std::streamsize>(all[i].count() * sizeof(float)));
    }
    out.flush();
    if (!out) throw config_error{path + ": cannot be written"};
  }
  if (shards > 1) {
    write_text(directory + "/model.safetensors.index.json",
               json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
  }
}

}  // namespace cohort::llama
