// Debian's Chromium with a fresh profile, and pages that collect their errors.

import { chromium } from 'playwright-core';

import { until } from './service.js';

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export const launch = () =>
  chromium.launch({
    executablePath: process.env.TIDEGATE_CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    timeout: 120_000,
    args: FLAGS,
  });

/** A page of its own context. `trouble` collects console errors, exceptions, foreign requests and policy violations. */
export async function openPage(
  browser,
  url,
  { width = 1280, height = 900, colorScheme = 'light', reducedMotion = 'reduce', ...more } = {},
) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme,
    reducedMotion,
    ...more,
  });
  const trouble = [];
  const page = await watched(context, url, trouble);
  // Another tab of the same browser.
  const tab = () => watched(context, url, trouble);
  return { page, trouble, tab, context, close: () => context.close() };
}

async function watched(context, url, trouble) {
  const page = await context.newPage();
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) trouble.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => trouble.push(`exception: ${error.message}`));
  page.on('request', (request) => {
    if (!request.url().startsWith(`${url}/`) && !request.url().startsWith('data:'))
      trouble.push(`request to elsewhere: ${request.url()}`);
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) =>
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  // Notices disappear by themselves, perhaps before a busy machine checks.
  await page.addInitScript(() => {
    window.noticed = [];
    new MutationObserver((changes) => {
      for (const { addedNodes } of changes)
        for (const node of addedNodes)
          if (node.nodeType === Node.ELEMENT_NODE && node.matches('.notice')) window.noticed.push(node.textContent);
    }).observe(document, { childList: true, subtree: true });
  });
  page.setDefaultTimeout(120_000);
  return page;
}

/** Waits for a notice with this text, whether or not it is still shown. */
export const noticed = (page, text) =>
  until(`the notice "${text}"`, () =>
    page.evaluate((wanted) => window.noticed.some((one) => one.includes(wanted)), text),
  );
