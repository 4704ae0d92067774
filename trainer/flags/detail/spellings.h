#pragma once

#include <string>
#include <vector>

namespace athanor {

/// A program's arguments with the flags of PyTorch Lightning, timm and the like in our words, where these
/// mean the same: "--max_epochs 5 --opt adamw" becomes "--max-epochs 5 --optimizer adamw". `known`: our
/// flags. The rest stays as it is.
std::vector<std::string> in_our_words(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& known);

/// What does here what that flag does elsewhere: "use --precision bf16 or f16"; empty: nothing is known of
/// it.
std::string answer_to(const std::string& flag);

}  // namespace athanor
