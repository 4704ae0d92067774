#pragma once

#include <string>
#include <vector>

namespace athanor {

/// Translates the flags of PyTorch Lightning, timm and others to ours if they mean the same: "--max_epochs 5
/// --opt adamw" becomes "--max-epochs 5 --optimizer adamw". `known`: our flags; `switches`: those without a
/// value, which may get True or False. Others are unchanged.
std::vector<std::string> translate_flags(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& known,
                                         const std::vector<std::string>& switches = {});

/// Our equivalent of another tool's flag: "use --precision bf16 or f16"; empty: unknown.
std::string flag_advice(const std::string& flag);
/// Throws ArgumentError with our equivalent if the flag's value is another tool's.
void refuse_value(const std::string& flag, const std::string& value);

}  // namespace athanor
