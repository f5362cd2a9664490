// Erases the types of TypeScript files, for a Node that does not do it itself: erase.mjs FOLDER FILE...
//
// Only transpiles. Syntax that has a meaning at run time is refused, because Node's own type stripping refuses it.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import process from "node:process";
import ts from "typescript";

const [folder, ...files] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "package.json"), '{"type": "module"}\n');

function fail(file, text) {
  console.error(`${file}: ${text}`);
  process.exit(1);
}

function isErasable(node) {
  return !(
    ts.isEnumDeclaration(node) ||
    ts.isModuleDeclaration(node) ||
    ts.isImportEqualsDeclaration(node) ||
    ts.isTypeAssertionExpression(node) ||
    ts.isParameterPropertyDeclaration(node, node.parent)
  );
}

for (const file of files) {
  const source = readFileSync(file, "utf8");
  const look = (node) => {
    if (!isErasable(node)) fail(file, `cannot be erased: ${node.getText()}`);
    ts.forEachChild(node, look);
  };
  ts.forEachChild(ts.createSourceFile(file, source, ts.ScriptTarget.ES2022, true), look);
  const { outputText, diagnostics } = ts.transpileModule(source, {
    fileName: file,
    reportDiagnostics: true,
    compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: true },
  });
  for (const { messageText } of diagnostics) fail(file, ts.flattenDiagnosticMessageText(messageText, "\n"));
  writeFileSync(join(folder, basename(file).replace(/\.ts$/, ".js")), outputText);
}
